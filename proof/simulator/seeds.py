"""Many seeds on all cores, or one of them step by step, and what is printed of it."""

import gc
import json
import logging
import math
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import Pool, TimeoutError
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from proof.simulator.coverage import Coverage, excluded
from proof.simulator.runs import simulator
from proof.simulator.scene import Scene
from proof.simulator.shrink import shrink
from proof.simulator.world import LEAST_FAULTS, LONG_RUN, Outcome

_LONGEST_CHUNK_SEEDS = 250
"""For which one database is made: making it, and preparing every statement anew, costs as much as several of them."""
_WARM_UP = 4
_LONGEST_CHUNK = 600.0
"""After so many seconds a process that was to run one must have died."""
_TOLD = 3
"""Failed seeds that are cut down; of the others, what and how to see it."""


def be_quiet() -> None:
    # What the code has to say about the faults is not news here.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _note(notes: Path, chunk: range) -> Path:
    return notes / f"from {chunk.start}"


def run_chunk(scene: Scene, seeds: range, notes: Path | None = None) -> list[Outcome]:
    """Whoever takes notes can tell which seed it was that never came to an end."""
    be_quiet()
    # This process will end with them; to collect their garbage before would take longer than some of them.
    gc.disable()
    outcomes = []
    with simulator(*scene) as one:
        for seed in seeds:
            if notes is not None:
                _note(notes, seeds).write_text(str(seed))
            outcomes.append(one.run(seed))
    return outcomes


def _outcomes(scene: Scene, seeds: range, jobs: int) -> Iterator[Outcome]:
    length = min(_LONGEST_CHUNK_SEEDS, math.ceil(len(seeds) / jobs))
    chunks = [seeds[start : start + length] for start in range(0, len(seeds), length)]
    if jobs == 1:
        for chunk in chunks:
            yield from run_chunk(scene, chunk)
        return
    # What is found out here once, such as how statements are compiled, each of the processes knows from its beginning.
    run_chunk(scene, seeds[:_WARM_UP])
    gc.enable()
    with Pool(jobs, maxtasksperchild=1) as pool, tempfile.TemporaryDirectory() as folder:
        done = pool.imap(partial(run_chunk, scene, notes=Path(folder)), chunks)
        for chunk in chunks:
            try:
                yield from done.next(_LONGEST_CHUNK)
            except TimeoutError:
                seed = int(_note(Path(folder), chunk).read_text())
                yield Outcome(seed, ["broke off: its process has died, or waits for ever"])
                return


def run_many(scene: Scene, seeds: range, jobs: int, figures: Path | None) -> int:
    console = Console()
    begun = time.monotonic()
    outcomes = _outcomes(scene, seeds, jobs)
    progress = track(outcomes, "simulating", len(seeds), console=console, disable=not console.is_terminal)
    faults: Counter[str] = Counter()
    failed: list[Outcome] = []
    keys: list[int] = []
    in_a_row = sent = 0
    fewest = sys.maxsize
    virtual = 0.0
    for outcome in progress:
        faults += outcome.faults
        fewest = min(fewest, outcome.faults.total())
        keys += outcome.keys
        in_a_row += max(outcome.keys, default=0) >= LONG_RUN
        sent, virtual = sent + outcome.sent, virtual + outcome.seconds
        if outcome.violations:
            failed.append(outcome)
    result = {
        "seeds": len(seeds),
        "faults": faults.total(),
        "fewest faults of a seed": fewest,
        "events": sum(keys),
        "events per key": round(sum(keys) / max(1, len(keys)), 2),
        "longest run of a key": max(keys, default=0),
        f"seeds with a run of {LONG_RUN} or more": in_a_row,
        "sent": sent,
        "virtual seconds": round(virtual),
        "seconds": round(time.monotonic() - begun, 1),
        "seconds of the processor": round(_processor_seconds(), 1),
        "failed seeds": [outcome.seed for outcome in failed],
    }
    if figures:
        figures.write_text(json.dumps(result | {"by kind": dict(faults)}, indent=2) + "\n")
    console.print(_table(result, faults))
    for outcome in failed[:_TOLD]:
        if any(violation.startswith("broke off") for violation in outcome.violations):
            # Again and again it would take as long, or end this process too.
            _name(console, scene, outcome)
        else:
            tell(scene, outcome.seed, None, trace=False, shrinking=True)
    for outcome in failed[_TOLD:]:
        _name(console, scene, outcome)
    return 1 if failed or fewest < LEAST_FAULTS else 0


def _processor_seconds() -> float:
    """Of this process and those that it started. The clock also shows who else was at work."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def crash_points(scene: Scene, seeds: range) -> int:
    """Kills wherever nobody was killed yet, until every place had its turn or the seeds are used up."""
    console = Console(soft_wrap=True)
    coverage = Coverage()
    with simulator(*scene) as one:
        for seed in seeds:
            if not coverage.missing():
                break
            if (outcome := one.run(seed, coverage=coverage, tracing=True)).violations:
                _print_faults(console, outcome)
                # Where it kills depends on where those before it did.
                so_far = f" --crash-points --first {seeds.start} --seeds {seed - seeds.start + 1}"
                _name(console, scene, outcome, so_far)
                return 1
    missing = coverage.missing()
    for site in coverage.waits():
        console.print(f"killed while it waits: {site}", markup=False)
    for kill in missing:
        console.print(f"never killed {kill}", markup=False)
    left_out = excluded()
    for place, reason in left_out:
        console.print(f"left out: {place} ({reason})", markup=False)
    console.print(f"{coverage.tried} of {coverage.tried + len(missing)} crash points tried, 0 promises broken")
    console.print(f"{len(left_out)} places left out, see above")
    return 1 if missing else 0


def _table(result: dict[str, object], faults: Counter[str]) -> Table:
    table = Table("what", "figure", title="The real code on virtual time")
    for name, figure in result.items():
        table.add_row(name, f"{figure:,}" if isinstance(figure, int) else str(figure))
    for fault, count in faults.most_common():
        table.add_row(f"  {fault}", f"{count:,}")
    return table


def tell(scene: Scene, seed: int, only: Sequence[int] | None, trace: bool, *, shrinking: bool) -> int:
    """One seed; if it fails, on request cut down to the faults that matter."""
    console = Console(soft_wrap=True, highlight=False)
    with simulator(*scene) as one:
        outcome = one.run(seed, only=only, tracing=True)
        if outcome.violations and shrinking:
            only = shrink(one, outcome)
            outcome = one.run(seed, only=only, tracing=True)
    beyond = [str(number) for number in only or () if number > outcome.drawn]
    if beyond and not outcome.violations:
        # That nothing broke without them says nothing.
        there = f"With those chosen, seed {seed} has {outcome.drawn}, numbered from 1."
        print(f"--only {' '.join(beyond)}: there is no such fault. {there}", file=sys.stderr)
        return 2
    if trace:
        _print_steps(console, outcome.trace)
    else:
        _print_faults(console, outcome)
    if not outcome.violations:
        console.print(f"seed {seed}: no promise was broken")
        return 0
    chosen = f" --only {' '.join(map(str, only))}" if only is not None else ""
    _name(console, scene, outcome, f" --seed {seed} --trace{chosen}")
    return 1


def _print_faults(console: Console, outcome: Outcome) -> None:
    _print_steps(console, [step for step in outcome.trace if "✗" in step or "was killed" in step])


def _print_steps(console: Console, steps: Sequence[str]) -> None:
    for step in steps:
        console.print(step, markup=False)


def _name(console: Console, scene: Scene, failed: Outcome, how: str = "") -> None:
    for violation in failed.violations:
        console.print(f"seed {failed.seed}: {violation}", markup=False, highlight=False, soft_wrap=True)
    how = (how or f" --seed {failed.seed} --trace") + scene.options
    console.print(f"Again: python -m proof.simulator{how}", markup=False, highlight=False, soft_wrap=True)
