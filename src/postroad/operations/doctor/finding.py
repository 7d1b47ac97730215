"""What a check is, and what it may find."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.app import Postroad

ALL_STORES = frozenset({"postgresql", "mysql", "sqlite"})
SERVERS = frozenset({"postgresql", "mysql"})


class Level(StrEnum):
    OK = "ok"
    HINT = "hint"
    """Nothing is wrong, and yet somebody may want to know."""
    UNMADE = "not made"
    """The check could not be made: nobody answered, a right was missing, or it took too long."""
    WARNING = "warning"
    """It works today, and will hurt one day."""
    FAULT = "fault"
    """Events are lost, doubled or stand still, now or at the next opportunity."""


@dataclass(frozen=True, slots=True)
class Problem:
    level: Level
    cause: str
    """One sentence."""
    cure: str
    """One sentence."""
    command: str = ""
    """What to type: a command of `postroad`, or a statement for the database's console."""


Find = Callable[["Postroad"], AsyncIterator[Problem]]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    looks_at: str
    find: Find
    after: tuple[str, ...] = ()
    """The checks that must be without a fault, or there is nothing to look at."""
    stores: frozenset[str] = ALL_STORES
    """The databases that have such a thing."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    looked_at: str
    level: Level
    cause: str = ""
    cure: str = ""
    command: str = ""
