"""`python -m proof.mutation`: plant mistakes one by one, and see whether a test notices."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from proof.mutation.explained import explained
from proof.mutation.mutants import GUARD, PACKAGES, ROOT, Mutant, all_mutants, difference, files
from proof.mutation.report import Results, survivors, table
from proof.options import at_least, need_packages, need_place, refuse_ignored

_RESULTS: Final = ROOT / "build" / "mutation" / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    _refuse_what_contradicts(parser, options)
    need_place(options.json)
    console = Console()
    # Asked to stop, it keeps what it has found so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.show is not None:
        chosen = _shown(parser, options.show)
        console.print("\n\n".join(map(difference, chosen)), markup=False)
        return 0
    mutants = _chosen(parser, options)
    results = _results(parser, options.json)
    if options.sample:
        mutants = sorted(random.Random(options.seed).sample(mutants, min(options.sample, len(mutants))), key=_place)
    if not (options.survivors or options.table):
        need_packages(["dev"])
        wanted = "survived" if options.again else ""
        todo = [one for one in mutants if (results.hung(one) if options.hung else results.state(one) == wanted)]
        # Then what has been tried when it is stopped is a fair sample of the whole.
        random.Random(options.seed).shuffle(todo)
        _try(todo, results, mutants, options, console)
    if options.survivors:
        survivors(results, mutants, console)
    return 0 if table(results, mutants, console, every_guard=GUARD in (options.only or ())) else 1


def _try(
    todo: Sequence[Mutant], results: Results, mutants: Sequence[Mutant], options: argparse.Namespace, console: Console
) -> None:
    from proof.mutation.campaign import Campaign  # needs the libraries of the tests
    from proof.mutation.select import cover

    pause = partial(_pause_while, options.pause_while)
    pause()
    covered = cover(console.print, pause, servers=not options.quick)
    Campaign(covered, results, mutants, options, pause, console).run(todo)


def _place(mutant: Mutant) -> tuple[str, int]:
    return mutant.file, mutant.number


def _pause_while(file: Path | None) -> None:
    while file is not None and file.exists():
        time.sleep(1.0)


# -- options -------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", help="only these: relay, stores/sqlite, inbox/keeper.py")
    parser.add_argument("--only", action="append", metavar="KIND", help="of mistake: guard, drop, lock, compare, …")
    parser.add_argument("--sample", type=at_least(1), metavar="N", help="only so many, chosen by chance")
    parser.add_argument("--seed", type=int, default=0, help="which chance")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where results are kept, and gone on from")
    parser.add_argument("--quick", action="store_true", help="without recording which tests run on servers")
    parser.add_argument("--budget", type=seconds, default=120.0, help="seconds of tests for one mistake, at most")
    parser.add_argument("--pause-while", type=Path, metavar="FILE", help="begin nothing new while this file exists")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--again", action="store_true", help="try those that survived once more, and nothing else")
    one.add_argument("--hung", action="store_true", help="try those once more that only a time limit noticed")
    one.add_argument("--survivors", action="store_true", help="list them; try nothing")
    one.add_argument("--table", action="store_true", help="print the scores; try nothing")
    one.add_argument("--show", metavar="ID", help="print the difference that one mistake makes")
    return parser


def seconds(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def _refuse_what_contradicts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.show is not None:
        why = "--show takes one mistake by its id, and no results. Leave out one or the other."
        refuse_ignored(parser, options, ("only", "sample", "json"), why)
        if options.paths:
            parser.error(f"{options.paths[0]}: {why}")
    if options.show is not None or options.survivors or options.table:
        why = "with --survivors, --table and --show nothing is tried. Leave out one or the other."
        refuse_ignored(parser, options, ("quick", "pause_while"), why)


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Mutant]:
    for path in options.paths:
        if not files([path]):
            parser.error(f"{path}: there is nothing of that name in {', '.join(PACKAGES)}, below src/postroad.")
    mutants = all_mutants(options.paths)
    kinds = sorted({one.operator for one in mutants})
    for kind in options.only or ():
        if kind not in kinds:
            parser.error(f"--only {kind}: no such kind of mistake there. There are {', '.join(kinds)}.")
    return [one for one in mutants if one.operator in (options.only or kinds)]


def _shown(parser: argparse.ArgumentParser, begin: str) -> list[Mutant]:
    chosen = [mutant for mutant in all_mutants() if begin and mutant.id.startswith(begin)]
    if not chosen:
        parser.error(f"--show {begin}: no mistake's id begins so. --survivors lists them with their ids.")
    return chosen


def _results(parser: argparse.ArgumentParser, file: Path | None) -> Results:
    try:
        return Results(file or _RESULTS, explained())
    except ValueError:
        # To go on from it would mean to write over it.
        parser.error(f"--json {file or _RESULTS}: there are no results of mutation in it. Name another file.")


if __name__ == "__main__":
    sys.exit(main())
