"""A database server: processes reach it through connections that can break. Which database it is, others say."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from proof.simulator.faults import COMMIT, STATEMENT
from proof.simulator.process import Process

if TYPE_CHECKING:
    from postroad.stores.base import Store
    from proof.simulator.world import World

name: ContextVar[str] = ContextVar("statement", default="")
"""Of the statement that is being run, as the store calls it."""

_AS_IT_IS = frozenset({"COMMIT", "BEGIN", "BEGIN IMMEDIATE"})


class Database(Protocol):
    """Tables that outlive a world: they take long to make, and little to empty."""

    stores: "list[Store]"
    """Of the two that serve, the one that writes, and the one that visits."""

    def serve(self, world: "World") -> "Server":
        """From now on the stores' connections are this world's."""

    def ask(self, sql: str) -> list[Any]:
        """As somebody whom nothing happens to."""

    def forget(self, store: "Store") -> None:
        """The connections that the store keeps for later: they were those of a process that is no more."""

    def reset(self) -> None:
        """As if nothing had ever been written."""


class Server(ABC):
    """Who is connected, and who wants to hear of commits."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.gone = asyncio.Event()
        self.links: dict[Link, None] = {}
        self.watchers: set[tuple[Process, Callable[[], None]]] = set()

    @property
    def away(self) -> bool:
        return self.gone.is_set()

    @away.setter
    def away(self, away: bool) -> None:
        if away:
            self.gone.set()
        else:
            self.gone.clear()

    @abstractmethod
    def unreachable(self) -> Exception:
        """What its driver says to one who wants to connect while it is away."""

    def committed(self) -> None:
        """Wake-ups may get lost, as real ones do."""
        for process, wake in sorted(self.watchers, key=lambda watcher: watcher[0].name):
            if process.alive and self.world.random.random() < 0.7:
                wake()

    def stop(self) -> None:
        for link in tuple(self.links):
            link.sever()


class Link(ABC):
    """One connection of one process."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server, self.process = server, process
        self.open = True
        server.links[self] = None
        process.at_death[self] = self.sever

    async def statement(self, sql: str, work: Callable[[], Any]) -> Any:
        """One round trip. Whatever may happen to one happens here."""
        world, process = self.server.world, self.process
        process.require_life()
        is_commit = sql == "COMMIT"
        what = sql if sql in _AS_IT_IS else name.get() or " ".join(sql.split()[:3])
        fault = world.fates.draw(COMMIT if is_commit else STATEMENT) or world.aimed(what)
        with world.reaching(process, what, fault):
            await process.step_outside(world.fates.latency())
            if is_commit and fault in ("refused", "busy", "strange"):
                self.roll_back()  # as databases do when they cannot commit
            self._suffer(fault, before=True)
            result = await self.perform(sql, work)
            if is_commit:
                self.server.committed()
        if not fault and not world.coverage:
            if self.server.away or not self.open:
                self._suffer(fault, before=False)
            return result
        with world.reaching(process, what, fault, done=True):
            if fault:
                await process.step_outside()
            self._suffer(fault, before=False)
        return result

    async def undo(self) -> None:
        """A rollback that somebody asks for. It cannot fail: whatever happens to it, nothing is left."""
        world = self.server.world
        with world.reaching(self.process, "ROLLBACK", ""):
            await self.process.step_outside()
            self.roll_back()
        with world.reaching(self.process, "ROLLBACK", "", done=True):
            pass

    def _suffer(self, fault: str, *, before: bool) -> None:
        if self.server.away or not self.open:
            self.sever()
            raise self.broken_off()
        match fault, before:
            case ("killed before", True) | ("killed after", False):
                self.process.die()
            case ("cut before", True) | ("cut after", False):
                self.sever()
                raise self.broken_off()
            case ("refused" | "busy" | "strange", True):
                raise self.trouble(fault)
            case "frozen", True:
                self.process.freeze(self.server.world.freeze_seconds())

    def sever(self) -> None:
        """The server rolls back for a client that is gone."""
        if self.open:
            self.open = False
            self.server.links.pop(self, None)
            self.process.at_death.pop(self, None)
            self.hang_up()

    @abstractmethod
    async def perform(self, sql: str, work: Callable[[], Any]) -> Any:
        """At the server; locks are waited for here."""

    @abstractmethod
    def roll_back(self) -> None: ...

    @abstractmethod
    def hang_up(self) -> None:
        """Whatever was begun is undone."""

    @abstractmethod
    def trouble(self, kind: str) -> Exception:
        """How this database's driver says "refused", "busy", or something strange."""

    @abstractmethod
    def broken_off(self) -> Exception:
        """How it says that the connection is of no more use."""
