"""The real outbox, relay, subscriber and inbox in one thread, on virtual time, with faults drawn from a seed.

`python -m proof.simulator` runs many seeds; `--seed N --trace` tells one of them step by step.
"""
