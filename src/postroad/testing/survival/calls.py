"""The user's handlers, watched: who was called for what, and whether the commit that followed went through."""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from uuid import UUID

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.app import Postroad
from postroad.errors import BusinessError, ConfigurationError
from postroad.handlers import Handler, Registry
from postroad.message import Message
from postroad.retry import describe
from postroad.testing.survival.patience import Patience
from postroad.testing.survival.whose import place_of


@dataclass(slots=True, eq=False)
class Call:
    handler: str
    group: str
    messages: Sequence[Message]
    failure: str = ""
    failed_at: str = ""
    """The line of the user's that failed."""
    refused: bool = False
    """It said "no": that settles the event."""
    mistake: str = ""
    """What no fault and no patience would change: the handler asks for something it cannot have."""
    ended: bool = False
    committed: bool = False

    def is_for(self, group: str, event_id: UUID) -> bool:
        return self.group == group and any(message.id == event_id for message in self.messages)

    @property
    def who(self) -> str:
        return f"`{self.handler}` (group {self.group})"

    @property
    def what(self) -> str:
        return " and ".join(map(label, self.messages))

    def __str__(self) -> str:
        return f"{self.who} for {self.what}"


def label(message: Message) -> str:
    return f"{message.type} {message.aggregate_id}"


Watch = Callable[[Call, AsyncSession], Awaitable[None]]

_ids: ContextVar[random.Random | None] = ContextVar("postroad_testing_ids", default=None)


class RepeatableIds(random.Random):
    """An event gets the same id in every run: from its cause if a handler writes it, else by counting."""

    def getrandbits(self, k: int, /) -> int:
        own = _ids.get()
        return super().getrandbits(k) if own is None else own.getrandbits(k)


@contextmanager
def watching(call: Call, road: object) -> Iterator[None]:
    token = _ids.set(random.Random(f"{call.group} {[str(message.id) for message in call.messages]}"))
    try:
        yield
    except BaseException as error:
        call.failure, call.failed_at = describe(error), place_of(error)
        call.refused = isinstance(error, BusinessError)
        call.mistake = mistake_of(error, road)
        raise
    finally:
        call.ended = True
        _ids.reset(token)


@dataclass(frozen=True, slots=True, eq=False)
class WatchedHandler(Handler):
    begun: Watch = None  # type: ignore[assignment]
    patience: Patience = None  # type: ignore[assignment]

    async def __call__(
        self, events: Sequence[object], messages: Sequence[Message], session: AsyncSession, road: object
    ) -> None:
        call = Call(self.name.rpartition(".")[2], self.group, tuple(messages))
        with watching(call, road):
            await self.begun(call, session)
            with self.patience.while_works(str(call)):
                await Handler.__call__(self, events, messages, session, road)


def mistake_of(error: BaseException, road: object) -> str:
    """Empty for whatever a fault, or another try, could change."""
    if isinstance(error, ConfigurationError):
        return str(error)
    if not isinstance(road, Postroad) or not isinstance(error, DBAPIError):
        return ""
    if road.store.code_of(error) not in road.store.missing_table_codes:
        return ""
    return (
        f"A table is missing ({describe(error.orig or error)}). Is its name written as where it is created? If it is, "
        "create your tables in `setup`, for each run begins with an empty database: survives(…, setup=create_tables) "
        "with `async def create_tables(road)`."
    )


def watched(registry: Registry, begun: Watch, patience: Patience) -> Registry:
    """The same handlers, each with somebody looking."""
    copy = Registry()
    for group in registry.groups:
        for handler in registry.handlers(group):
            values = {field.name: getattr(handler, field.name) for field in fields(Handler)}
            copy.put(WatchedHandler(**values, begun=begun, patience=patience))
    return copy
