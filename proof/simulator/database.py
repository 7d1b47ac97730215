"""A database server: processes reach it through connections that can break. Which database it is, others say."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from postroad.stores import open_store
from postroad.stores.base import Store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX
from proof.simulator.faults import BEGIN, COMMIT, STATEMENT, UPKEEP, WRITING
from proof.simulator.process import Process, current

if TYPE_CHECKING:
    from proof.simulator.world import World

_name: ContextVar[str] = ContextVar("statement", default="")

SHARDS: Final = 16
"""As many as two relays need to have several each; renewing more at every beat would be most of the work here."""
_WATCHED_EVERY = 0.02
_AS_IT_IS = frozenset({"COMMIT", "BEGIN", "BEGIN IMMEDIATE"})
_UPKEEP = re.compile("BEGIN|worker|lease_|relays_alive|handler_|prun|read_due$|inbox_due$|outbox_unsent$")
_WRITING = re.compile(
    "INSERT INTO (booking|moved|asked|.postroad_outbox_add)|SAVEPOINT|RELEASE|ROLLBACK"
    # A command is ten of them: at the risk of the others, none would ever come through.
    "|command_|event_|events_|projection"
    # So is a repair.
    "|clock_|check_|repair_|version_follow|audit_|outbox_find"
)


class named:  # noqa: N801 — used as `with named(…):`
    """The statement that is being run, as the store calls it: where it goes through layers that do not pass that on."""

    __slots__ = ("_statement",)

    def __init__(self, statement: str) -> None:
        self._statement = statement

    def __enter__(self) -> None:
        _name.set(self._statement)

    def __exit__(self, *_: object) -> None:
        # What a handler runs next on the same connection has no name.
        _name.set("")


@cache
def _told(sql: str) -> str:
    return " ".join(sql.split()[:3])


@cache
def _risks(what: str) -> Mapping[str, float]:
    if _UPKEEP.match(what):
        return UPKEEP
    return WRITING if _WRITING.match(what) else STATEMENT


class Database(ABC):
    """Tables that outlive a world: they take long to make, and little to empty. So do engines and connections."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = stores
        """Of the two that serve, the one that writes, and the one that visits."""
        self.idle: list[Any] = []
        """The driver's own connections that nobody uses at the moment."""

    def serve(self, world: "World") -> "Server":
        """From now on the stores' connections are this world's."""
        server = self.server_for(world)
        for store in self.stores:
            store.server = server  # type: ignore[attr-defined]
        return server

    def connect(self) -> Any:
        return self.idle.pop() if self.idle else self.connect_anew()

    def forget(self, store: Store) -> None:
        """The connections that the store keeps for later: they were those of a process that is no more."""
        store._engine.sync_engine.dispose(close=False)

    def reset(self) -> None:
        """As if nothing had ever been written."""
        for store in self.stores:
            self.forget(store)
        self.empty()

    @abstractmethod
    def server_for(self, world: "World") -> "Server": ...

    @abstractmethod
    def connect_anew(self) -> Any: ...

    @abstractmethod
    def ask(self, sql: str) -> list[Any]:
        """As somebody whom nothing happens to."""

    @abstractmethod
    def empty(self) -> None: ...


async def create(url: str, tables: Iterable[str]) -> None:
    """Postroad's tables as its own migrations make them, and those of the workload."""
    store = open_store(url)
    await migrate(store, (DEFAULT_OUTBOX,))
    async with store.transaction() as connection:
        for table in tables:
            await connection.execute(text(table))
        await connection.execute(text(f"DELETE FROM postroad_shard WHERE shard >= {SHARDS}"))
    await store.aclose()


class Server(ABC):
    """Who is connected, and who wants to hear of commits."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.away = False
        self._gone = asyncio.Event()
        self.links: dict[Link, None] = {}
        self.watchers: set[tuple[Process, Callable[[], None]]] = set()
        self._telling = False

    def be_away(self, away: bool) -> None:
        self.away = away
        if away:
            self._gone.set()
        else:
            self._gone.clear()

    def is_locked(self) -> bool:
        """Whether nobody could write just now."""
        return False

    async def watch(self, wake: Callable[[], None]) -> None:
        """Wakes whoever asks after each commit, until the server is gone."""
        process = current.get()
        assert process is not None
        with self.world.reaching(process, "watch", ""):
            self.watchers.add((process, wake))
        try:
            with self.world.reaching(process, "watch", "", done=True):
                await self._gone.wait()
        finally:
            self.watchers.discard((process, wake))

    def keeps_out_others(self, process: Process) -> bool:
        """Whether nobody else could write if this process froze now."""
        return False

    @abstractmethod
    def unreachable(self) -> Exception:
        """What its driver says to one who wants to connect while it is away."""

    def committed(self) -> None:
        """Who watches looks now and then, as the SQLite store does, and hears of several commits at once."""
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_later(_WATCHED_EVERY, self._tell)

    def _tell(self) -> None:
        """Wake-ups may get lost, as real ones do."""
        self._telling = False
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
        self._carries = False
        """Whether the transaction that is open has to do with an event."""
        server.links[self] = None
        process.at_death[self] = self.sever

    async def statement(self, sql: str, work: Callable[[], Any], name: str = "") -> Any:
        """One round trip. Whatever may happen to one happens here. `name` is what the store calls it."""
        world, process = self.server.world, self.process
        if not process.alive:
            raise asyncio.CancelledError
        is_commit = sql == "COMMIT"
        what = name or (sql if sql in _AS_IT_IS else _name.get() or _told(sql))
        fault = world.fates.draw(self._risks(what))
        if world.coverage is not None:
            fault = fault or world.aimed(process, what)
        if not fault and world.unwatched:
            return await self._undisturbed(sql, is_commit, work)
        with world.reaching(process, what, fault):
            await process.step_outside(world.fates.latency())
            if is_commit and fault in ("refused", "busy", "strange"):
                self.roll_back()  # as databases do when they cannot commit
            self._suffer(fault, before=True)
            if fault == "frozen":
                await process.step_outside()  # before it, so that others may act in between
                self._suffer("", before=True)
            result = await self.perform(sql, work)
            if is_commit and self._carries:
                self.server.committed()
        with world.reaching(process, what, fault, done=True):
            if fault:
                await process.step_outside()
            self._suffer(fault, before=False)
        return result

    async def _undisturbed(self, sql: str, is_commit: bool, work: Callable[[], Any]) -> Any:
        """The same, in short: most statements are such."""
        latency = self.server.world.fates.latency()
        if latency or not self.process.may_go_on():
            await self.process.step_outside(latency)
        if not self.open or self.server.away:
            self._suffer("", before=True)
        result = await self.perform(sql, work)
        if is_commit and self._carries:
            self.server.committed()
        if not self.open or self.server.away:
            self._suffer("", before=False)
        return result

    def _risks(self, what: str) -> Mapping[str, float]:
        if what == "COMMIT":
            return COMMIT if self._carries else UPKEEP
        risks = _risks(what)
        self._carries = risks is not UPKEEP or (self._carries and not what.startswith("BEGIN"))
        return BEGIN if what == "BEGIN IMMEDIATE" and self.server.world.tills else risks

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
