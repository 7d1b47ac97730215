"""Where processes have been killed: every await, COMMIT and statement of relay and consumer, before and after.

*Before* means that the step outside which the process was about to take had not happened yet; *after*, that it had,
but the process never came to know. Of an await beneath which a transaction ends, the COMMIT is a point by itself. An
await that leads nowhere outside by itself (a lock, a pause, other tasks) is killed while it waits, which is both.
"""

import ast
import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import postroad
from postroad.stores import queries
from proof.simulator.process import Process

SOURCE = Path(postroad.__file__).parent
STAGES = ("relay", "subscriber", "inbox")
ELSEWHERE = {
    "relay/adoption.py": "sorts in the rows of adopted tables; this world has none",
    "inbox/keeper.py: LeaseKeeper": "a thread of its own, which is not part of this world",
}
"""Files, or classes in them."""
UNREACHABLE = {
    ("relay/relay.py", "self._adoption.run_once"): "adopted tables; this world has none",
    ("relay/relay.py", "        await self._set_out()"): "a round by itself, for tests; here the relay runs",
    ("relay/relay.py", "asyncio.gather(*begun"): "a round by itself, for tests; here the relay runs",
    ("relay/pruner.py", '"prune_facts"'): "outboxes whose rows are never changed; this world has none",
    ("inbox/inbox.py", "self._keeper.aclose"): "returns at once where no thread renews leases",
    (
        "subscriber/subscriber.py",
        "give_all_back(items",
    ): "after an error that nobody foresaw: there is none",
    ("inbox/scheduler.py", "self._inbox.give_up("): "a kept message of another release; this world has one release",
    ("inbox/records.py", "given_up = await"): "a kept message of another release; this world has one release",
    ("inbox/records.py", '"inbox_failures"'): "read by a person, about what has failed; nobody looks here",
    ("inbox/records.py", '"inbox_attempts"'): "read by a person, beside dead letters; nobody looks here",
}
"""By file and what the line says: awaits at which nobody in this world can stand, each with the reason."""
NEVER_RUN = {
    **dict.fromkeys(
        ("adoption_turn", "assign_shard", "unsharded", "version_follow", "version_read"),
        ELSEWHERE["relay/adoption.py"],
    ),
    "prune_facts": "outboxes whose rows are never changed; this world has none",
    "inbox_failures": "read by a person, about what has failed; nobody looks here",
    "inbox_attempts": "read by a person, beside dead letters; nobody looks here",
    "inbox_give_up": "a kept message of another release; this world has one release",
}
"""Statements that nobody in this world runs."""


class Site(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Kill(NamedTuple):
    where: Site | str
    """A statement by its name."""
    phase: str
    at_commit: bool = False
    """Of the transaction that ends there."""

    def __str__(self) -> str:
        return f"{self.phase} {'the COMMIT of ' * self.at_commit}{self.where}"


@cache
def sites() -> frozenset[Site]:
    """Every place in the code at which a process can stand while it waits."""
    return frozenset(site for site, line in _everywhere().items() if not _excuses(site, line))


@cache
def commits() -> frozenset[Site]:
    """Those whose own line is a transaction, with its COMMIT at the end of it."""
    transactions = {site for name, tree in _code() for site in _sites_in(tree, name, _lines_of_commits)}
    return sites() & transactions


@cache
def statements() -> frozenset[str]:
    """What the stages run, by its name in the stores' SQL: each has its name in the code of one of them."""
    return _named() - NEVER_RUN.keys()


@cache
def _named() -> frozenset[str]:
    constants = {node.value for _, tree in _code() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return frozenset(queries.load("sqlite")) & constants


def stale() -> list[object]:
    """What is left out, but is not there."""
    used = {excuse for site, line in _everywhere().items() for excuse in _excuses(site, line)}
    places = {place for name, tree in _code() for part in tree.body for place in _places(name, part)}
    return [*(UNREACHABLE.keys() - used), *(ELSEWHERE.keys() - places), *(NEVER_RUN.keys() - _named())]


@cache
def _code() -> list[tuple[str, ast.Module]]:
    files = [file for stage in STAGES for file in sorted((SOURCE / stage).glob("*.py"))]
    return [(file.relative_to(SOURCE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def _everywhere() -> dict[Site, str]:
    """With what their lines say."""
    found: dict[Site, str] = {}
    for name, tree in _code():
        lines = (SOURCE / name).read_text(encoding="utf-8").splitlines()
        found |= {site: lines[site.line - 1] for site in _sites_in(tree, name, _lines_of)}
    return found


def _places(file: str, part: ast.stmt) -> set[str]:
    """By what it may be left out."""
    return {file, f"{file}: {part.name}"} if isinstance(part, ast.ClassDef) else {file}


def _excuses(site: Site, line: str) -> list[tuple[str, str]]:
    return [(file, words) for file, words in UNREACHABLE if site.file == file and words in line]


def _sites_in(tree: ast.Module, file: str, lines_of: Callable[[ast.AST], list[int]]) -> Iterator[Site]:
    for part in tree.body:
        if not ELSEWHERE.keys() & _places(file, part):
            for function in ast.walk(part):
                if isinstance(function, ast.AsyncFunctionDef):
                    for node in ast.walk(function):
                        for line in lines_of(node):
                            yield Site(file, line, function.name)


def _lines_of(node: ast.AST) -> list[int]:
    if isinstance(node, ast.Await):
        return [node.lineno]
    if isinstance(node, ast.AsyncWith):
        return [item.context_expr.lineno for item in node.items]
    return [node.iter.lineno] if isinstance(node, ast.AsyncFor) else []


def _lines_of_commits(node: ast.AST) -> list[int]:
    if isinstance(node, ast.Await):
        return [node.lineno] if _called(node.value) == "change" else []
    begun = [item.context_expr for item in node.items] if isinstance(node, ast.AsyncWith) else []
    return [call.lineno for call in begun if _called(call) in ("transaction", "handling")]


def _called(call: ast.expr) -> str:
    """The last part of the name of what is called."""
    return ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""


_FEW = 16
_IN_BETWEEN = frozenset({("subscriber/handling.py", "_again"), ("subscriber/handling.py", "_failed")})


class Coverage:
    def __init__(self) -> None:
        self.killed: set[Kill] = set()
        self.seen: set[Kill] = set()
        """Where somebody stood with a step outside before him or behind him, killed or not."""
        self._began: set[Site] = set()
        """Where somebody stood who began a transaction: it ends there, too."""
        self._waited: set[Site] = set()
        """Where somebody was killed who took no step outside, at least not himself."""

    def wants(self, process: Process, what: str, done: bool) -> bool:
        """Whether a kill right here would be a new one: for the task at work, or for another that waits."""
        stands = _running()
        here = _kills(stands, what, done)
        self.seen |= here
        if what == "BEGIN IMMEDIATE":
            self._began |= stands - _only_begin()
        return not here <= self.killed or any(
            where not in self._waited and Kill(where, "before") not in self.killed
            for task in process.under_way()
            if task is not asyncio.current_task()
            for where in _waiting(task.get_coro())
        )

    def in_between(self) -> bool:
        """Whether the task at work knows something that others may make untrue before it acts on it: somebody who
        freezes here finds out. Asked for when little else is left to find, and only where something is."""
        missing = self._missing()
        if len(missing) > _FEW:
            return False
        wanted = {(kill.where.file, kill.where.function) for kill in missing if isinstance(kill.where, Site)}
        stands = {(site.file, site.function) for site in _running()}
        return bool(_IN_BETWEEN & wanted & stands)

    def witness(self, process: Process, doing: dict[asyncio.Task[Any] | None, tuple[str, bool]]) -> None:
        """The moment of a kill: where its tasks stand."""
        for task in process.under_way():
            stands = _running() if task is asyncio.current_task() else _waiting(task.get_coro())
            if task in doing:
                kills = _kills(stands, *doing[task])
                self.killed |= kills
                self.seen |= kills
            else:
                self._waited |= stands

    @property
    def tried(self) -> int:
        return len(self._wanted() - self._missing())

    def waits(self) -> list[Site]:
        """Where nobody was ever seen to take a step outside: to be killed there while it waits is all there is."""
        return sorted(self._waited - {kill.where for kill in self.seen})

    def missing(self) -> list[Kill]:
        return sorted(self._missing(), key=str)

    def _missing(self) -> frozenset[Kill]:
        return self._wanted() - self.killed - _both(self.waits())

    def _wanted(self) -> frozenset[Kill]:
        """What the code says, and what was found beneath it: steps that are no statements of ours, and transactions."""
        steps = {kill for kill in self.seen if isinstance(kill.where, str)}
        return _from_the_code() | steps | _both(self._began, at_commit=True)


@cache
def _only_begin() -> frozenset[Site]:
    return frozenset(site for site, line in _everywhere().items() if "run_sync(_begin)" in line)


@cache
def _from_the_code() -> frozenset[Kill]:
    return _both({*sites(), *statements()}) | _both(commits(), at_commit=True)


def _both(places: Iterable[Site | str], *, at_commit: bool = False) -> frozenset[Kill]:
    return frozenset(Kill(where, phase, at_commit) for where in places for phase in ("before", "after"))


def _kills(stands: set[Site], what: str, done: bool) -> set[Kill]:
    """What it is to be killed there, at this step."""
    phase = _phase(done)
    found = {Kill(_kind(what), phase)} | {Kill(where, phase) for where in stands}
    return found | {Kill(where, phase, at_commit=True) for where in stands} if what == "COMMIT" else found


def excluded() -> list[tuple[str, str]]:
    """What is not among the crash points, and why."""
    lines = [(f"{file}: {words}", reason) for (file, words), reason in UNREACHABLE.items()]
    return [*ELSEWHERE.items(), *lines, *NEVER_RUN.items()]


def _kind(what: str) -> str:
    """Of a step, without how many it is about."""
    return what.rstrip("0123456789 ")


def _phase(done: bool) -> str:
    return "after" if done else "before"


def _running() -> set[Site]:
    """Of the task at work, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    found = set()
    while frame is not None:
        if site := _site(frame):
            found.add(site)
        frame = frame.f_back
    return found


def _waiting(coroutine: Any) -> set[Site]:
    """Of a task that waits: from its outermost coroutine inwards, also through asynchronous generators."""
    found = set()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None and (site := _site(frame)):
            found.add(site)
        if hasattr(coroutine, "cr_await"):
            coroutine = coroutine.cr_await
        elif hasattr(coroutine, "ag_await"):
            coroutine = coroutine.ag_await
        else:
            # What `anext` returns does not tell its generator, but refers to it.
            coroutine = next((thing for thing in gc.get_referents(coroutine) if hasattr(thing, "ag_await")), None)
    return found


def _site(frame: FrameType) -> Site | None:
    return _site_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@cache
def _site_at(path: str, line: int, function: str) -> Site | None:
    if not path.startswith(str(SOURCE)):
        return None
    site = Site(Path(path).relative_to(SOURCE).as_posix(), line, function)
    return site if site in sites() else None
