"""Runs the campaigns, shows the table; exit code 1 if anything was lost, invented, doubled or out of order."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from proof.chaos.plan import SHORT, STORES
from proof.chaos.servers import installed
from proof.options import need_packages, need_place

_FIGURES: Final = Path(__file__).parents[2] / "build" / "chaos.json"
_BROKERS: Final = tuple(SHORT)
_IN_FILES: Final = ("sqlite", "embedded")
_EXTRAS: Final = {"mariadb": "mysql"}


@click.command()
@click.option("--long", is_flag=True, help="One pair after the other: ten minutes, and many times the events.")
@click.option("--store", "stores", multiple=True, type=click.Choice(STORES), help="Only this one; may be repeated.")
@click.option("--broker", "brokers", multiple=True, type=click.Choice(_BROKERS), help="Likewise.")
@click.option("--seed", type=int, help="Of the choice of faults; a run cannot be repeated exactly.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="The figures; build/chaos.json, if not given.")
def main(long: bool, stores: Sequence[str], brokers: Sequence[str], seed: int | None, file: Path | None) -> None:
    """Kill, freeze, cut off, silence, restart, fill the disk; then balance the books."""
    # Each once, however often it was named.
    stores = [store for store in STORES if store in stores or not stores]
    brokers = [broker for broker in _BROKERS if broker in brokers or not brokers]
    need_place(file)
    # All brokers' libraries: each can tell what it has taken, and they are loaded together.
    need_packages([*_BROKERS, *(_EXTRAS.get(store, store) for store in stores)])
    _need_programs([*stores, *brokers])
    from proof.chaos import pairs  # needs the libraries

    seed = random.randrange(1_000_000) if seed is None else seed
    sys.exit(0 if pairs.run(long, stores, brokers, seed, file or _FIGURES) else 1)


def _need_programs(names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in _IN_FILES and not installed(name)]:
        cure = "Install them (scripts/services up tries to), or name others with --store and --broker."
        print(f"There are no programs of {', '.join(missing)} here. {cure}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
