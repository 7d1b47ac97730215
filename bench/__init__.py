"""How fast, beside the least that could do the same: `python -m bench [figure …] [--quick | --full]`.

Every figure is a ratio of two measurements that took turns in one run, so that it means the same on any
machine.
"""
