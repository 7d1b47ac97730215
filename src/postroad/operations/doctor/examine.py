"""All checks, one after the other; what one cannot see does not stop the next."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from postroad.errors import PostroadError
from postroad.operations.doctor.checks import CHECKS
from postroad.operations.doctor.finding import Check, Finding, Level, Problem
from postroad.redact import redact
from postroad.retry import describe

if TYPE_CHECKING:
    from postroad.app import Postroad

PATIENCE: Final = 5.0
"""Seconds that one check may take."""
_STOPS: Final = (Level.FAULT, Level.UNMADE)


@dataclass(frozen=True, slots=True)
class Report:
    database: str
    broker: str
    findings: Sequence[Finding]
    """In the order of the checks; each check has at least one."""

    def at(self, level: Level) -> Sequence[Finding]:
        return [finding for finding in self.findings if finding.level is level]


async def examine(road: "Postroad", *, again: str = "", patience: float = PATIENCE) -> Report:
    """Changes nothing. `again` completes the recommended commands, as in ` --app shop:road`."""
    findings: list[Finding] = []
    for check in CHECKS:
        if road.store.dialect in check.stores:
            problems = _waits_for(check, findings) or await _make(check, road, patience)
            findings += [_finding(check, problem, again) for problem in problems or [_NOTHING]]
    return Report(road.store.address, road.broker.address, findings)


async def _make(check: Check, road: "Postroad", patience: float) -> list[Problem]:
    found: list[Problem] = []
    try:
        async with asyncio.timeout(patience):
            async for problem in check.find(road):
                found.append(problem)
    except TimeoutError:
        cure = "Look again when there is less to do, or find out who holds it up."
        found.append(Problem(Level.UNMADE, f"This check did not come to its end within {patience:g} s.", cure))
    except Exception as error:
        # Also for a mistake of ours: the other checks are still worth making.
        told = str(error) if isinstance(error, PostroadError) else describe(error)
        found.append(Problem(Level.UNMADE, told, "Give what is missing, and look again."))
    return found


def _waits_for(check: Check, findings: Sequence[Finding]) -> list[Problem]:
    for name in check.after:
        if any(finding.check == name and finding.level in _STOPS for finding in findings):
            return [Problem(Level.UNMADE, f"It needs the check {name!r} to be without a fault.", "Mend that first.")]
    return []


_NOTHING: Final = Problem(Level.OK, "", "")


def _finding(check: Check, problem: Problem, again: str) -> Finding:
    command = f"{problem.command}{again}" if problem.command.startswith("postroad ") else problem.command
    return Finding(check.name, check.looks_at, problem.level, redact(problem.cause), problem.cure, command)
