"""Runs the campaigns, shows the table; exit code 1 if anything was lost, invented, doubled or out of order."""

import asyncio
import random
import sys
import tempfile
from itertools import groupby, product
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from proof.chaos.brokers import WIRES, Wire
from proof.chaos.campaign import NotAtRest, Result, campaign
from proof.chaos.ground import STORES
from proof.chaos.plan import LONG, SCORECARD, SHORT, Plan, Tally
from proof.chaos.report import progress_line, record, table, totals

_FIGURES: Final = Path(__file__).parents[2] / "build" / "chaos.json"


@click.command()
@click.option("--long", is_flag=True, help="Ten minutes in all, and many times the events.")
@click.option("--store", "stores", multiple=True, type=click.Choice(STORES), help="Only this one; may be repeated.")
@click.option("--broker", "brokers", multiple=True, type=click.Choice([wire.name for wire in WIRES]), help="Likewise.")
@click.option("--seed", type=int, help="Of the choice of faults; a run cannot be repeated exactly.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    default=_FIGURES,
    show_default="build/chaos.json",
    help="The figures, for programs.",
)
def main(long: bool, stores: tuple[str, ...], brokers: tuple[str, ...], seed: int | None, json_file: Path) -> None:
    """Kill, freeze, cut off, silence, restart, fill the disk; then balance the books."""
    seed = random.randrange(1_000_000) if seed is None else seed
    console = Console(width=max(Console().width, 120))
    console.print(f"seed {seed}")
    results = []
    try:
        for store, wire in product(stores or STORES, WIRES):
            if not brokers or wire.name in brokers:
                results.append(_run(console, store, wire, (LONG if long else SHORT)[wire.name], seed))
    except NotAtRest as error:
        console.print(str(error), markup=False, highlight=False)
        console.print(f"[red]{store} × {wire.name} did not come to rest.[/red]")
        sys.exit(1)
    for _, of_a_store in groupby(results, lambda result: result.store):
        console.print(table(list(of_a_store)))
    for crash in (crash for result in results for crash in result.crashes):
        console.print(crash, markup=False, highlight=False)
    record(json_file, seed, long, results)
    short = _short_of_the_scorecard(results) if long and not (stores or brokers) else []
    for figure in short:
        console.print(f"[red]in all too little was done: {figure}[/red]")
    sys.exit(0 if all(result.passed for result in results) and not short else 1)


def _short_of_the_scorecard(results: list[Result]) -> list[str]:
    done = totals(results)
    return [f"{name} {done[name]:,} < {least:,}" for name, least in SCORECARD.items() if done[name] < least]


def _run(console: Console, store: str, wire: Wire, plan: Plan, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="postroad-chaos-") as folder, console.status("") as status:
        # The account that runs a server must be able to reach its data.
        Path(folder).chmod(0o755)

        def progress(phase: str, tally: Tally) -> None:
            status.update(progress_line(store, wire.name, phase, tally))

        result = asyncio.run(campaign(store, wire, plan, seed, Path(folder), progress))
    books = "balanced" if result.books.balanced else f"[red]{result.books}[/red]"
    phase = f"{result.events:,} events in {result.seconds:.0f} s · {books}"
    console.print(progress_line(store, wire.name, phase, result.tally))
    return result


if __name__ == "__main__":
    main()
