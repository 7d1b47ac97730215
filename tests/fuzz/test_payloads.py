"""Ten thousand strange events on every store: stored byte by byte as encoded, or refused by name with no trace."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from sqlalchemy import text

from postroad import Postroad, event
from postroad.codec import decode
from postroad.errors import InvalidPayload, MessageTooLarge
from postroad.events import event_type_of
from postroad.message import Message
from postroad.relay import Relay, RelayOptions
from postroad.testing.office import RecordingBroker
from tests.fuzz.conftest import bounded
from tests.fuzz.strange import Strange, storable
from tests.support.outbox import emptied
from tests.support.shapes import Bag, Order, order

BATCHES, PER_BATCH = 44, 256
TOPIC = "shop.order.events"


@event("thing.happened", topic=TOPIC, aggregate="thing", key="id")
class Happened(msgspec.Struct):
    id: Any
    body: Any = None


@event("order.typed", topic=TOPIC, aggregate="order")
class Typed(Order):
    pass


@event("bag.packed", topic=TOPIC, aggregate="bag")
class Packed(Bag):
    pass


@dataclass
class Attempt:
    """One call of `add`, and what is known beforehand about its end."""

    event: Any
    options: dict[str, Any] = field(default_factory=dict)
    refused: bool | None = None
    """None: not known."""


def draw(strange: Strange) -> Attempt:
    chance = strange.chance
    kind = chance.random()
    if kind < 0.5:
        drawn = strange.value()
        return Attempt(Happened(strange.name(), drawn.value), refused=not drawn.faithful)
    if kind < 0.65:
        fields = msgspec.structs.asdict(order(**strange.typed()))
        return Attempt(Typed(**fields))
    if kind < 0.75:
        drawn = strange.value()
        name = strange.any_text()
        return Attempt(Packed({name: drawn.value}), refused=not (drawn.faithful and storable(name)))
    if kind < 0.85:
        id = chance.choice((strange.any_text, lambda: strange.value(9).value, lambda: chance.getrandbits(64)))()
        return Attempt(Happened(id))
    return Attempt(Happened(strange.name(), strange.faithful_value()), *options(strange))


def options(strange: Strange) -> tuple[dict[str, Any], bool | None]:
    """Headers, tenant and the rest, with whether they must be refused where that is sure."""
    chance = strange.chance
    kind = chance.random()
    if kind < 0.5:
        headers = {strange.any_text(): strange.any_text() for _ in range(chance.choice((1, 2, 5, 150)))}
        if chance.random() < 0.1:
            headers[chance.choice((1, None, "a", b"x"))] = chance.choice((1, None, b"x", ["x"], "x"))  # type: ignore[index, assignment]
        return {"headers": headers}, not all(map(fits_header, headers.items())) or len(headers) > 90
    if kind < 0.8:
        name = chance.choice(("tenant", "correlation_id", "user_id", "idempotency_key"))
        given = strange.any_text()
        if name == "idempotency_key":
            # Only its hash is stored, so its NUL does no harm. Made unique, because a repeat would be no event.
            refused = not given or not storable(given.replace("\0", ""))
            return {name: given + strange.name() if given else given}, refused
        never_empty = name in ("correlation_id", "user_id") and not given
        refused = never_empty or not fits(given, 1_024) or (name == "tenant" and len(given) > 255)
        return {name: given}, refused
    name = chance.choice(("tenant", "headers", "delay", "version", "idempotency_key"))
    wrong = chance.choice((0, 5, 1.5, b"x", ["x"], {"x"}, object(), float("nan"), timedelta.max, 10**30, "x", True, ""))
    return {name: wrong}, None


def fits(text: object, limit: int) -> bool:
    return isinstance(text, str) and storable(text) and len(text.encode()) <= limit


def fits_header(entry: tuple[Any, Any]) -> bool:
    return fits(entry[0], 256 - len("header.")) and fits(entry[1], 1_024)


class Road:
    """A road on one store, a broker that writes down what it gets, and one event loop for all of it."""

    def __init__(self, url: str, loop: asyncio.Runner) -> None:
        self.road, self.loop = Postroad("shop", url, "embedded:"), loop
        loop.run(emptied(self.road.store))

    def write(self, attempts: list[Attempt]) -> list[tuple[Attempt, Message]]:
        return self.loop.run(self._write(attempts))

    async def _write(self, attempts: list[Attempt]) -> list[tuple[Attempt, Message]]:
        written = []
        async with self.road.session() as session, session.begin():
            for attempt in attempts:
                try:
                    message = self.road.add(session, attempt.event, **attempt.options).message
                except (InvalidPayload, MessageTooLarge) as refusal:
                    check_refusal(attempt, refusal)
                else:
                    assert attempt.refused is not True, f"accepted: {attempt}"
                    written.append((attempt, message))
        return written

    def read_back(self) -> dict[Any, Message]:
        """What the relay sends, by event id; the outbox is empty afterwards."""
        return self.loop.run(self._read_back())

    async def _read_back(self) -> dict[Any, Message]:
        broker = RecordingBroker()
        relay = Relay(self.road.store, broker, options=RelayOptions(batch=1_000))  # type: ignore[arg-type]
        while await relay.run_once():
            pass
        await relay.leases.release()
        assert relay.statistics.parked == 0
        return {message.id: message for message in broker.sent}

    def forget(self) -> tuple[int, int]:
        return self.loop.run(self._forget())

    async def _forget(self) -> tuple[int, int]:
        """Empties the tables; how many events and how many aggregates there were."""
        async with self.road.store.transaction() as connection:
            events = await connection.execute(text("DELETE FROM postroad_outbox"))
            aggregates = await connection.execute(text("DELETE FROM postroad_version"))
        return events.rowcount, aggregates.rowcount

    def close(self) -> None:
        self.loop.run(self.road.aclose())


def check_refusal(attempt: Attempt, refusal: InvalidPayload | MessageTooLarge) -> None:
    assert attempt.refused is not False, f"{refusal}: {attempt}"
    told = str(refusal)
    assert told.isprintable(), told
    if isinstance(refusal, InvalidPayload):
        assert refusal.path
        assert refusal.rule


@pytest.fixture
def road(store_url: str, loop: asyncio.Runner) -> Iterator[Road]:
    road = Road(store_url, loop)
    yield road
    road.close()


def test_what_is_accepted_comes_back_byte_by_byte(road: Road) -> None:
    stored = 0

    @given(seed=st.integers(0, 2**64 - 1))
    @bounded(BATCHES, phases=[Phase.generate], report_multiple_bugs=False)
    def write_and_compare(seed: int) -> None:
        nonlocal stored
        strange = Strange(seed)
        written = road.write([draw(strange) for _ in range(PER_BATCH)])
        back = road.read_back()
        aggregates = {(message.aggregate_type, message.aggregate_id) for _, message in written}
        assert back.keys() == {message.id for _, message in written}
        assert road.forget() == (len(written), len(aggregates))
        for attempt, message in written:
            compare(attempt, message, back[message.id])
        stored += len(written)

    write_and_compare()
    assert BATCHES * PER_BATCH > 10_000
    assert stored > BATCHES * PER_BATCH // 2


def compare(attempt: Attempt, sent: Message, back: Message) -> None:
    assert back.payload == sent.payload
    given = sent.version or back.version
    assert back == msgspec.structs.replace(sent, version=given)
    # Another program's parser must read it too, and may be stricter than ours.
    json.loads(back.payload, parse_constant=pytest.fail)
    arrived = decode(back.payload, event_type_of(attempt.event))
    assert arrived == attempt.event
    if isinstance(attempt.event, Happened):
        assert exact(arrived.body) == exact(attempt.event.body)  # type: ignore[attr-defined]


def exact(value: Any) -> Any:
    """Tells apart what Python calls equal: -0.0 and 0.0, 1 and 1.0 and True."""
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [exact(one) for one in value]
    return repr(value)


def test_the_lot_draws_enough_of_both_kinds() -> None:
    drawn = [Strange(seed).value() for seed in range(2_000)]
    refused = sum(not one.faithful for one in drawn)
    assert 200 < refused < 1_200
