"""Explores the scenarios, hunts the mutants, shows both tables; exit code 1 if anything is off."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proof.model import MUTANTS, SCENARIOS, Explored, Mutant, World, explore, story
from proof.options import need_place

ENOUGH = 300_000
"""States that all scenarios together must have."""
_NAMES = [mutant.name for mutant in MUTANTS]
_TRY_NEXT = 'Try next: make model ARGS="--story all" tells how each mutant does harm, step by step; or the name of one.'


@click.command()
@click.option("--story", "told", metavar="MUTANT", help="Only tell how this mutant does harm; `all` for every one.")
@click.option("--more", type=click.IntRange(0), default=0, help="So many faults more than the bounds say: much slower.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Leave the figures in a file.")
def main(told: str | None, more: int, file: Path | None) -> None:
    """Every reachable state of Postroad's protocol, within small bounds."""
    console = Console(width=max(Console().width, 110), highlight=False)
    need_place(file)
    if told is not None:
        if more or file:
            raise click.UsageError("--story tells a mutant, and explores nothing. Leave out --more and --json.")
        for mutant in _chosen(told):
            _tell(console, mutant)
        return
    explored = []
    begun, spent_before = time.monotonic(), time.process_time()
    for scenario in SCENARIOS:
        with console.status(f"exploring: {scenario.name}"):
            explored.append(explore(World(replace(scenario, faults=scenario.faults + more))))
    with console.status("hunting the mutants"):
        hunted = [(mutant, mutant.hunt()) for mutant in MUTANTS]
    seconds, spent = time.monotonic() - begun, time.process_time() - spent_before
    console.print(_scenarios(explored))
    console.print(_mutants(hunted))
    console.print(f"All of it in {seconds:.1f} seconds, {spent:.1f} of them the processor's.")
    console.print(_TRY_NEXT, markup=False, soft_wrap=True)
    for result in explored:
        if result.violation:
            _print_story(console, result)
    if file:
        took = {"seconds": round(seconds, 1), "seconds of the processor": round(spent, 1)}
        file.write_text(json.dumps(_figures(explored, hunted) | took, indent=1) + "\n", encoding="utf-8")
    if problems := _problems(explored, hunted):
        console.print("\n".join(f"[red]{escape(problem)}[/red]" for problem in problems))
        sys.exit(1)


def _chosen(told: str) -> Sequence[Mutant]:
    found = [mutant for mutant in MUTANTS if told == "all" or (told and told.lower() in mutant.name.lower())]
    exact = [mutant for mutant in found if mutant.name == told]
    if not found:
        raise click.BadParameter(f"there is no mutant {told!r}; there are: {', '.join(_NAMES)}", param_hint="--story")
    return exact or found


def _tell(console: Console, mutant: Mutant) -> None:
    result = mutant.hunt()
    console.print(f"[bold]{escape(mutant.name)}[/bold] (without the rule {mutant.rule})")
    _print_story(console, result)


def _print_story(console: Console, result: Explored) -> None:
    for number, sentence in enumerate(story(result.world, result.trace), 1):
        console.print(f"  {number:>3}. {escape(sentence)}")
    if result.violation:
        console.print(f"       [red]{result.violation.invariant}: {escape(result.violation.says)}[/red]\n")
    else:
        console.print("       [yellow]no harm found[/yellow]\n")


def _scenarios(explored: Sequence[Explored]) -> Table:
    table = Table(title="The protocol: every state within the bounds")
    for heading in ("scenario", "what may happen"):
        table.add_column(heading)
    for heading in ("states", "transitions", "depth", "violations", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in explored:
        table.add_row(
            result.world.scenario.name,
            f"[dim]{escape(result.world.scenario.says)}[/dim]",
            f"{result.states:,}",
            f"{result.transitions:,}",
            str(result.depth),
            "[red]1[/red]" if result.violation else "[green]0[/green]",
            f"{result.seconds:.1f}",
        )
    table.add_section()
    total = (sum(r.states for r in explored), sum(r.transitions for r in explored))
    violations = sum(r.violation is not None for r in explored)
    seconds = sum(r.seconds for r in explored)
    table.add_row("all", "", f"{total[0]:,}", f"{total[1]:,}", "", str(violations), f"{seconds:.1f}")
    return table


def _mutants(hunted: Sequence[tuple[Mutant, Explored]]) -> Table:
    table = Table(title="Mutants: the protocol without one of its rules")
    for heading in ("mutant", "found by"):
        table.add_column(heading, no_wrap=True)
    for heading in ("steps", "states"):
        table.add_column(heading, justify="right")
    for mutant, result in hunted:
        found = escape(result.violation.invariant) if result.violation else "[red]not found[/red]"
        table.add_row(mutant.name, found, str(len(result.trace) or ""), f"{result.states:,}")
    return table


def _figures(explored: Sequence[Explored], hunted: Sequence[tuple[Mutant, Explored]]) -> dict[str, Any]:
    return {
        "states": sum(result.states for result in explored),
        "violations": sum(result.violation is not None for result in explored),
        "scenarios": [{"name": result.world.scenario.name, **_plain(result)} for result in explored],
        "mutants": [{"name": mutant.name, "rule": mutant.rule, **_plain(result)} for mutant, result in hunted],
    }


def _plain(result: Explored) -> dict[str, Any]:
    return {
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "seconds": round(result.seconds, 2),
        "kinds": sorted(result.kinds),
        "violation": result.violation._asdict() if result.violation else None,
        "story": story(result.world, result.trace),
    }


def _problems(explored: Sequence[Explored], hunted: Sequence[tuple[Mutant, Explored]]) -> list[str]:
    found = [f"{r.world.scenario.name}: {r.violation.invariant} is broken" for r in explored if r.violation]
    states = sum(result.states for result in explored)
    if states < ENOUGH:
        found.append(f"only {states:,} states were explored; at least {ENOUGH:,} are wanted")
    for mutant, result in hunted:
        if result.violation is None or result.violation.invariant != mutant.breaks:
            found.append(f"mutant {mutant.name!r} should be found by {mutant.breaks!r}")
    return found


if __name__ == "__main__":
    main()
