"""The mistakes in turn, each tried by the tests that could notice it, and now and then these tests without any."""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from proof.mutation.mutants import Mutant
from proof.mutation.report import Results
from proof.mutation.run import Job, Verdict, Warm, ask_fresh
from proof.mutation.select import Cover

_BETWEEN_CONTROLS: Final = 15


class Campaign:
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
