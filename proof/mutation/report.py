"""The results as they are kept, the score, and the table."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from proof.mutation.explained import Explanation
from proof.mutation.mutants import GUARD, PACKAGES, Mutant

ENOUGH: Final = 90.0
"""Per cent, in each package."""


@dataclass(frozen=True, slots=True)
class Score:
    mutants: int
    killed: int
    explained: int

    @property
    def survived(self) -> int:
        return self.mutants - self.killed - self.explained

    @property
    def percent(self) -> float:
        counted = self.mutants - self.explained
        return 100.0 * self.killed / counted if counted else 100.0


class Results:
    """By mutant; written as they come, so that a run can be stopped and gone on with."""

    def __init__(self, file: Path, reasons: Sequence[Explanation]) -> None:
        self._file, self._reasons = file, reasons
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"mutants": {}}
        self.verdicts: dict[str, dict[str, Any]] = _verdicts(known)

    def state(self, mutant: Mutant) -> str:
        """killed, survived, explained, or empty for one that was not tried yet."""
        status = str(self.verdicts.get(mutant.id, {}).get("status", ""))
        return "explained" if status == "survived" and any(one.about(mutant) for one in self._reasons) else status

    def hung(self, mutant: Mutant) -> bool:
        """Whether it was noticed only because a test did not come to its end."""
        verdict = self.verdicts.get(mutant.id, {})
        return bool(verdict) and str(verdict["by"]).startswith("time")

    def put(self, mutant: Mutant, status: str, by: str) -> None:
        self.verdicts[mutant.id] = {
            "file": mutant.file, "function": mutant.function, "line": mutant.first, "operator": mutant.operator,
            "before": mutant.before, "after": mutant.after, "status": status, "by": by,
        }  # fmt: skip

    def score(self, mutants: Iterable[Mutant]) -> Score:
        count = Counter(self.state(mutant) for mutant in mutants)
        return Score(sum(count.values()) - count[""], count["killed"], count["explained"])

    def unnoticed_guards(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        """Tried, and not killed: no share of the other 10 % and no explanation is for them."""
        return [one for one in mutants if one.operator == GUARD and self.state(one) not in ("", "killed")]

    def untried_guards(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        return [one for one in mutants if one.operator == GUARD and not self.state(one)]

    def save(self, mutants: Sequence[Mutant]) -> None:
        scores = {name: _figures(self.score(of)) for name, of in _by(mutants, "package").items()}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"scores": scores, "mutants": self.verdicts}, indent=1)
        half = self._file.with_suffix(".part")
        half.write_text(text + "\n", encoding="utf-8")
        half.replace(self._file)


def _verdicts(known: Any) -> dict[str, dict[str, Any]]:
    """The files of other commands look alike, even to the name."""
    if not isinstance(known, dict) or not isinstance(verdicts := known.get("mutants"), dict):
        raise ValueError("no results of mutation")
    return verdicts


def _figures(score: Score) -> dict[str, float]:
    return {"mutants": score.mutants, "killed": score.killed, "explained": score.explained,
            "survived": score.survived, "percent": round(score.percent, 1)}  # fmt: skip


def _by(mutants: Iterable[Mutant], what: str) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        found.setdefault(getattr(mutant, what), []).append(mutant)
    return found


def table(results: Results, mutants: Sequence[Mutant], console: Console, *, every_guard: bool = False) -> bool:
    """Prints it; whether anything was tried, every package that was has reached the score, and no guard survived or,
    if every one is asked for, was left untried."""
    shown = Table("module", *("tried", "killed", "explained", "survived", "score"))
    for column in shown.columns[1:]:
        column.justify = "right"
    enough = results.score(mutants).mutants > 0
    packages = _by(mutants, "package")
    for package in (name for name in PACKAGES if name in packages):
        for file, of_file in _by(packages[package], "file").items():
            if (score := results.score(of_file)).mutants:
                shown.add_row(file, *_cells(score))
        if (score := results.score(packages[package])).mutants:
            enough = enough and score.percent >= ENOUGH
            shown.add_row(f"[bold]{package}", *(f"[bold]{cell}" for cell in _cells(score)), end_section=True)
    console.print(shown)
    unnoticed = results.unnoticed_guards(mutants)
    for guard in unnoticed:
        console.print(f"a guard that no test notices: {guard.id}  {guard.file}:{guard.first}", markup=False)
    untried = results.untried_guards(mutants)
    if guards := sum(one.operator == GUARD for one in mutants):
        console.print(f"guards that are written out: {guards - len(untried)} of {guards} tried")
    for guard in untried if every_guard else ():
        console.print(f"a guard that was not tried: {guard.id}  {guard.file}:{guard.first}", markup=False)
    return enough and not unnoticed and not (every_guard and untried)


def _cells(score: Score) -> Sequence[str]:
    counts = (score.mutants, score.killed, score.explained, score.survived)
    return [*map(str, counts), f"{score.percent:.1f} %"]


def survivors(results: Results, mutants: Sequence[Mutant], console: Console) -> None:
    for mutant in mutants:
        if results.state(mutant) == "survived":
            console.print(f"{mutant.id}  {mutant.file}:{mutant.first}  {mutant.function}  ({mutant.operator})\n"
                          f"          {mutant.before}\n          {mutant.after}", markup=False, highlight=False,
                          soft_wrap=True)  # fmt: skip
