"""`python -m proof.mutation`: plant mistakes one by one, and see whether a test notices."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from proof.mutation.explained import explained
from proof.mutation.mutants import GUARD, ROOT, Mutant, all_mutants, difference
from proof.mutation.report import Results, survivors, table
from proof.mutation.run import Job, Verdict, Warm, ask_fresh
from proof.mutation.select import Cover, cover

_RESULTS: Final = ROOT / "build" / "mutation" / "results.json"
_BETWEEN_CONTROLS: Final = 15


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    console = Console()
    # Asked to stop, it keeps what it has found so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    mutants = [one for one in all_mutants(options.paths) if one.operator in (options.only or [one.operator])]
    if options.show:
        chosen = [mutant for mutant in all_mutants() if mutant.id.startswith(options.show)]
        console.print("\n\n".join(map(difference, chosen)), markup=False)
        return 0 if chosen else 1
    results = Results(options.json, explained())
    if options.sample:
        mutants = sorted(random.Random(options.seed).sample(mutants, min(options.sample, len(mutants))), key=_place)
    if not (options.survivors or options.table):
        wanted = "survived" if options.again else ""
        todo = [one for one in mutants if (results.hung(one) if options.hung else results.state(one) == wanted)]
        # Then what has been tried when it is stopped is a fair sample of the whole.
        random.Random(options.seed).shuffle(todo)
        pause = partial(_pause_while, options.pause_while)
        pause()
        covered = cover(console.print, pause, servers=not options.quick)
        _Campaign(covered, results, mutants, options, pause, console).run(todo)
    if options.survivors:
        survivors(results, mutants, console)
    return 0 if table(results, mutants, console, every_guard=GUARD in (options.only or ())) else 1


def _place(mutant: Mutant) -> tuple[str, int]:
    return mutant.file, mutant.number


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", help="only these: relay, stores/sqlite, inbox/keeper.py")
    parser.add_argument("--only", action="append", metavar="KIND", help="of mistake: guard, drop, lock, compare, …")
    parser.add_argument("--sample", type=int, help="only so many, chosen by chance")
    parser.add_argument("--seed", type=int, default=0, help="which chance")
    parser.add_argument("--json", type=Path, default=_RESULTS, help="where results are kept, and gone on from")
    parser.add_argument("--quick", action="store_true", help="without recording which tests run on servers")
    parser.add_argument("--again", action="store_true", help="try those that survived once more, and nothing else")
    parser.add_argument("--hung", action="store_true", help="try those once more that only a time limit noticed")
    parser.add_argument("--survivors", action="store_true", help="list them; try nothing")
    parser.add_argument("--table", action="store_true", help="print the scores; try nothing")
    parser.add_argument("--show", metavar="ID", help="print the difference that one mistake makes")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of tests for one mistake, at most")
    parser.add_argument("--pause-while", type=Path, metavar="FILE", help="begin nothing new while this file exists")
    return parser.parse_args(arguments)


def _pause_while(file: Path | None) -> None:
    while file is not None and file.exists():
        time.sleep(1.0)


class _Campaign:
    def __init__(
        self, covered: Cover, results: Results, mutants: Sequence[Mutant],
        options: argparse.Namespace, pause: Callable[[], None], console: Console,
    ) -> None:  # fmt: skip
        self._cover, self._results, self._mutants = covered, results, mutants
        self._options, self._pause, self._console = options, pause, console
        self._killers: dict[tuple[str, str], list[str]] = {}
        self._warm: Warm | None = None

    def run(self, todo: Sequence[Mutant]) -> None:
        since_control: list[Mutant] = []
        try:
            for number, mutant in enumerate(todo, 1):
                self._pause()
                begun = time.monotonic()
                verdict = self._try(mutant)
                self._note(mutant, verdict)
                self._console.print(
                    f"{number}/{len(todo)} {verdict.status} {time.monotonic() - begun:.1f} s  {mutant.id} "
                    f"{mutant.file}:{mutant.first} {mutant.operator} ({verdict.by})",
                    markup=False, highlight=False, soft_wrap=True,
                )  # fmt: skip
                since_control.append(mutant)
                if len(since_control) >= _BETWEEN_CONTROLS or number == len(todo):
                    self._control(since_control)
                    since_control = []
        finally:
            self._results.save(self._mutants)
            self._close()

    def _try(self, mutant: Mutant) -> Verdict:
        tests = self._cover.tests_for(mutant, self._options.budget, newest=self._options.again)
        if not tests:
            return Verdict("survived", "no test runs it")
        # What has noticed a mistake in this function is likely to notice the next.
        proven = [test for test in self._killers.get((mutant.file, mutant.function), []) if test in tests]
        job = Job(mutant, [(test, self._cover.seconds(test)) for test in dict.fromkeys([*proven, *tests])])
        if self._cover.is_loaded_with(mutant):
            return ask_fresh(job)
        verdict = self._warmed().ask(job)
        return ask_fresh(job) if verdict.status == "late" else verdict

    def _note(self, mutant: Mutant, verdict: Verdict) -> None:
        self._results.put(mutant, verdict.status, verdict.by)
        if verdict.by in self._cover.tests:
            killers = self._killers.setdefault((mutant.file, mutant.function), [])
            killers[:] = list(dict.fromkeys([verdict.by, *killers]))[:3]

    def _control(self, mutants: Sequence[Mutant]) -> None:
        """A mistake may have left something behind that fails every test after it: then those verdicts are void."""
        killers = dict.fromkeys(self._results.verdicts[mutant.id]["by"] for mutant in mutants)
        tests = [(test, self._cover.seconds(test)) for test in killers if test in self._cover.tests]
        if not tests or self._warmed().ask(Job(None, tests)).status == "survived":
            self._results.save(self._mutants)
            return
        self._console.print("tests fail without any mistake: trying the last ones again, with new databases")
        self._close()
        for mutant in mutants:
            self._note(mutant, self._try(mutant))
            self._require_sane(mutant)

    def _require_sane(self, mutant: Mutant) -> None:
        by = self._results.verdicts[mutant.id]["by"]
        if (
            by in self._cover.tests
            and self._warmed().ask(Job(None, [(by, self._cover.seconds(by))])).status != "survived"
        ):
            self._console.print(f"{mutant.id} leaves something behind, or {by} is not to be relied upon")
            self._close()

    def _warmed(self) -> Warm:
        self._warm = self._warm or Warm()
        return self._warm

    def _close(self) -> None:
        if self._warm is not None:
            self._warm.close()
            self._warm = None


if __name__ == "__main__":
    sys.exit(main())
