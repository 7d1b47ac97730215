"""A campaign for each pair of a store and a broker, some at once; then the table, and whether all is well."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, product
from pathlib import Path

from rich.console import Console

from proof.chaos.brokers import WIRES, Wire
from proof.chaos.campaign import NotAtRest, Progress, Restless, Result, campaign
from proof.chaos.plan import AT_ONCE, LONG, SCORECARD, SHORT, STORES, Plan, Tally
from proof.chaos.report import end_line, left_in_broker, progress_line, record, table, totals


def run(long: bool, stores: Sequence[str], brokers: Sequence[str], seed: int, figures: Path) -> bool:
    """Whether nothing was lost, invented, doubled or out of order, and enough was done."""
    console = Console(width=max(Console().width, 120))
    console.print(f"seed {seed}")
    wires = [wire for wire in WIRES if wire.name in brokers]
    pairs = list(product(stores, wires))
    plans, at_once = (LONG, 1) if long else (SHORT, AT_ONCE)
    begun = time.monotonic()
    ends = asyncio.run(_all(console, pairs, plans, seed, at_once))
    seconds = time.monotonic() - begun
    results = [end for end in ends if isinstance(end, Result)]
    restless = [end for end in ends if isinstance(end, Restless)]
    for _, of_a_store in groupby(results, lambda result: result.store):
        console.print(table(list(of_a_store)))
    for told in (told for result in results for told in (*result.crashes, *left_in_broker(result))):
        console.print(told, markup=False, highlight=False)
    for pair in restless:
        console.print(pair.told, markup=False, highlight=False)
        console.print(f"[red]{pair.store} × {pair.broker} did not come to rest.[/red]")
    console.print(f"{len(pairs)} pairs in {seconds:.0f} s, {at_once} at once")
    record(figures, seed, long, seconds, results, restless)
    short = _short_of_the_scorecard(results) if long and len(pairs) == len(STORES) * len(WIRES) else []
    for figure in short:
        console.print(f"[red]in all too little was done: {figure}[/red]")
    return all(result.passed for result in results) and not (short or restless)


def _short_of_the_scorecard(results: list[Result]) -> list[str]:
    done = totals(results)
    return [f"{name} {done[name]:,} < {least:,}" for name, least in SCORECARD.items() if done[name] < least]


async def _all(
    console: Console, pairs: Sequence[tuple[str, Wire]], plans: Mapping[str, Plan], seed: int, at_once: int
) -> list[Result | Restless]:
    turn = asyncio.Semaphore(at_once)
    lines: dict[str, str] = {}
    with console.status("") as status:

        async def one(store: str, wire: Wire) -> Result | Restless:
            def progress(phase: str, tally: Tally) -> None:
                lines[f"{store} × {wire.name}"] = progress_line(store, wire.name, phase, tally)
                status.update("\n".join(lines.values()))

            async with turn:
                end = await _one(store, wire, plans[wire.name], seed, progress)
            lines.pop(f"{store} × {wire.name}", None)
            console.print(end_line(end))
            return end

        return await asyncio.gather(*(one(store, wire) for store, wire in pairs))


async def _one(store: str, wire: Wire, plan: Plan, seed: int, progress: Progress) -> Result | Restless:
    with _folder() as folder:
        try:
            return await campaign(store, wire, plan, seed, folder, progress)
        except NotAtRest as error:
            # The others' books are to be seen all the same.
            return Restless(store, wire.name, str(error))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postroad-chaos-") as name:
        folder = Path(name)
        # The account that runs a server must be able to reach its data.
        folder.chmod(0o755)
        yield folder
