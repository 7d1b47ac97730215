from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

import msgspec
import pytest

from postroad.errors import ConfigurationError
from postroad.events import EventType
from postroad.handlers import Registry
from tests.support.consuming import TOPIC, OrderCancelled, OrderPlaced, placed


async def fine(event: OrderPlaced, session: Any, message: Any, road: Any) -> None: ...
async def also_fine(anything: OrderPlaced, *, session: Any, mine: int = 3) -> None: ...
async def loose(event: OrderPlaced, *args: Any, **kwargs: Any) -> None: ...
async def takes_list(events: list[OrderPlaced], session: Any, messages: Any) -> None: ...


async def sesion(event: OrderPlaced, sesion: Any) -> None: ...
async def event_second(session: Any, event: OrderPlaced) -> None: ...
async def wants_database(event: OrderPlaced, database: Any) -> None: ...
async def wants_messages(event: OrderPlaced, messages: Any) -> None: ...
async def no_event() -> None: ...
async def only_named(*, session: Any) -> None: ...
async def yields(event: OrderPlaced) -> AsyncIterator[int]:
    yield 1


def yields_too(event: OrderPlaced) -> Iterator[int]:
    yield 1


class Callable_:  # noqa: N801
    async def __call__(self, event: OrderPlaced, session: Any) -> None: ...


def decorated(function: Any) -> Any:
    @wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "wants", "is_async"),
    [
        (fine, {"session", "message", "road"}, True),
        (also_fine, {"session"}, True),
        (loose, set(), True),
        (Callable_(), {"session"}, True),
        (decorated(also_fine), {"session"}, True),
        (partial(fine, road=1, message=2), {"session", "message", "road"}, True),
        (lambda event, session: None, {"session"}, False),
    ],
)
def test_a_handler_asks_by_the_names_of_its_parameters(function: Any, wants: set[str], is_async: bool) -> None:
    handler = Registry().add("g", OrderPlaced, function)
    assert handler.wants == wants
    assert handler.is_async is is_async


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (sesion, {}, "asks for 'sesion'.*mean 'session'.*session, message, road"),
        (wants_database, {}, "asks for 'database'.*session, message, road"),
        (event_second, {}, "asks for 'event'.*Put the event first"),
        (wants_messages, {}, "asks for 'messages'.*mean 'message'"),
        (fine, {"batch": 5}, "asks for 'message'.*mean 'messages'.*session, messages, road"),
        (no_event, {}, "takes no event"),
        (only_named, {}, "takes no event"),
        (yields, {}, "yields"),
        (yields_too, {}, "yields"),
        (fine, {"commit_every": 0}, "commit_every is 0"),
        (takes_list, {"batch": True}, "batch is True"),
        (takes_list, {"batch": 5, "commit_every": 5}, "drop commit_every"),
        (None, {}, "not a function"),
    ],
)
def test_what_cannot_be_called_is_refused_at_registration(function: Any, options: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Registry().add("g", OrderPlaced, function, **options)


def test_a_group_has_one_handler_for_a_type() -> None:
    registry = Registry()
    registry.add("g", OrderPlaced, fine)
    registry.add("h", OrderPlaced, fine)
    with pytest.raises(ConfigurationError, match="two handlers in group 'g': fine and also_fine"):
        registry.add("g", OrderPlaced, also_fine)


def test_a_class_that_is_no_event_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not declared as an event"):
        Registry().add("g", int, fine)


def test_the_registry_knows_groups_types_and_topics() -> None:
    registry = Registry()
    registry.add("g", OrderPlaced, fine)
    registry.add("g", OrderCancelled, fine)
    registry.add("h", EventType("user.seen", "shop.user.events", "user", None, 1, None, dict), fine)
    assert registry.groups == ("g", "h")
    assert registry.types("g") == {"order.placed", "order.cancelled"}
    assert registry.topics("g") == (TOPIC,)
    assert registry.topics("h") == ("shop.user.events",)


@pytest.mark.spec("P8")
def test_a_handler_is_chosen_by_schema_version() -> None:
    class Second(msgspec.Struct):
        order_id: str

    registry = Registry()
    first = registry.add("g", OrderPlaced, fine)
    third = registry.add("g", EventType("order.placed", TOPIC, "order", "order_id", 3, None, Second), fine)
    chosen = [registry.find("g", placed(schema_version=version)) for version in (1, 2, 3, 4)]
    assert chosen == [first, third, third, third]
    assert registry.find("g", placed(type="order.unknown")) is None
