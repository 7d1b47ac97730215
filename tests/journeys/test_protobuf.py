"""Protobuf events on the whole road: envelope, versions from the database, two schema versions of one fact."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, Message, OutboxTable, Postroad, SubscriberOptions, TransientError, event, operations
from postroad.codec.upcast import Upcasters
from postroad.errors import ConfigurationError, InvalidPayload, MessageTooLarge
from postroad.handlers import Registry
from postroad.inbox import Status
from postroad.subscriber import Subscriber
from postroad.testing.office import RecordingBroker
from tests.support.catalog import declare, v1, v2
from tests.support.consuming import deliver

CREATE = "CREATE TABLE seen (id INTEGER, grp VARCHAR(40), schema_version INTEGER, title VARCHAR(100))"


@pytest.fixture(autouse=True)
def declared_here() -> None:
    declare()


class PaidV1(msgspec.Struct, frozen=True):
    order_id: str


class PaidV2(msgspec.Struct, frozen=True):
    order_id: str
    currency: str


for number, cls in enumerate((PaidV1, PaidV2), 1):
    event("order.settled", topic="shop.order.events", aggregate="order", key="order_id", schema_version=number)(cls)


@asynccontextmanager
async def catalog(database_url: str, tmp_path: Path, **options: Any) -> AsyncIterator[Postroad]:
    async with Postroad("catalog", database_url, f"embedded:{tmp_path / 'broker.db'}", **options) as road:
        await road.migrate()
        async with road.store.engine.begin() as connection:
            await connection.execute(text(CREATE))
        yield road


def reader(road: Postroad, group: str, *classes: type) -> list[tuple[str, int, int | None]]:
    """A group that knows these classes; what it was given: class, the message's schema and aggregate version."""
    seen: list[tuple[str, int, int | None]] = []
    for cls in classes:

        async def handle(event: Any, message: Message, session: AsyncSession) -> None:
            seen.append((type(event).__name__, message.schema_version, message.version))
            values = {"grp": group, "version": message.schema_version, "title": event.title}
            await session.execute(text("INSERT INTO seen VALUES (1, :grp, :version, :title)"), values)

        road.on(cls, group=group)(handle)
    return seen


async def effects(road: Postroad) -> dict[str, int]:
    async with road.session() as session:
        rows = await session.execute(text("SELECT grp, COUNT(*) FROM seen GROUP BY grp"))
        return {row[0]: row[1] for row in rows}


def both(video: str, title: str = "T") -> tuple[v2.VideoCreatedV2, v1.VideoCreated]:
    return (
        v2.VideoCreatedV2(video_id=video, title=title, language="de"),
        v1.VideoCreated(video_id=video, title=title),
    )


async def carried(road: Postroad) -> RecordingBroker:
    """All that waits, sent to a broker that notes it."""
    road.__dict__["broker"] = wire = RecordingBroker()
    (relay,) = road.runner(groups=[]).relays
    while await relay.run_once():
        pass
    await relay.leases.release()
    return wire


async def rows(road: Postroad) -> list[Any]:
    async with road.session() as session:
        query = "SELECT version, schema_version, state FROM postroad_outbox ORDER BY aggregate_id, version"
        return list(await session.execute(text(query)))


@pytest.mark.spec("P7")
async def test_an_envelope_carries_the_version_that_the_database_gave_out(database_url: str, tmp_path: Path) -> None:
    async with catalog(database_url, tmp_path) as road:
        async with road.session() as session, session.begin():
            added = [road.add(session, v1.VideoCreated(video_id="v-1", title=f"T{n}")) for n in range(3)]
            added.append(road.add(session, v1.VideoDeleted(video_id="v-1")))
            added.append(road.add(session, v1.VideoCreated(video_id="v-2"), version=41))
        wire = await carried(road)
        sent = {message.id: message for message in wire.sent}
        for one, version in zip(added, [1, 2, 3, 4, 41], strict=True):
            message = sent[one.id]
            told = v1.Event.FromString(message.payload)
            assert told.version == message.version == version
            assert told.event_id == str(one.id) == message.attributes()["event_id"]
            assert told.occurred_at.ToDatetime(tzinfo=UTC) == message.occurred_at == one.message.occurred_at
            assert message.content_type == "application/x-protobuf"
        assert v1.Event.FromString(sent[added[3].id].payload).WhichOneof("payload") == "deleted"


@pytest.mark.spec("P7")
async def test_enveloped_events_are_handled_in_order_as_their_own_class(database_url: str, tmp_path: Path) -> None:
    async with catalog(database_url, tmp_path) as road:
        seen = reader(road, "reader", v1.VideoCreated)
        async with road.running():
            async with road.session() as session, session.begin():
                for n in range(1, 4):
                    road.add(session, v1.VideoCreated(video_id="v-1", title=f"T{n}"))
            await road.drain()
        assert seen == [("VideoCreated", 1, n) for n in (1, 2, 3)]


@pytest.mark.spec("P8")
async def test_one_fact_in_two_versions_is_handled_once_by_every_kind_of_consumer(
    database_url: str, tmp_path: Path
) -> None:
    async with catalog(database_url, tmp_path) as road:
        old = reader(road, "old", v1.VideoCreated)
        new = reader(road, "new", v2.VideoCreatedV2)
        between = reader(road, "between", v1.VideoCreated, v2.VideoCreatedV2)
        async with road.running():
            async with road.session() as session, session.begin():
                for video in ("v-1", "v-2"):
                    newer, older = both(video)
                    road.add(session, older, also=[newer])  # in any order
                road.add(session, v1.VideoCreated(video_id="v-1", title="last"))
            await road.drain()
            dead = await road.broker.dead_letters("catalog.video.events")
        # Without a twin, v1 is nothing that `new` can read: recorded, and kept with the dead letters.
        assert [letter.attributes["version"] for letter in dead] == ["3"]
        assert sorted(old) == [("VideoCreated", 1, 2), ("VideoCreated", 1, 2), ("VideoCreated", 1, 3)]
        assert new == [("VideoCreatedV2", 2, 1)] * 2
        assert sorted(between) == [("VideoCreated", 1, 3), ("VideoCreatedV2", 2, 1), ("VideoCreatedV2", 2, 1)]
        assert await effects(road) == {"old": 3, "new": 2, "between": 3}


@pytest.mark.spec("P8")
@pytest.mark.parametrize("classes", [(v1.VideoCreated,), (v2.VideoCreatedV2,), (v1.VideoCreated, v2.VideoCreatedV2)])
async def test_a_fact_whose_first_attempt_fails_is_handled_once_too(
    classes: tuple[type, ...], database_url: str, tmp_path: Path
) -> None:
    backoff = Backoff(attempts=3, base=0.01)
    async with catalog(database_url, tmp_path, subscriber=SubscriberOptions(backoff=backoff)) as road:
        failures = iter([TransientError("not now")])
        handled: list[int | None] = []

        async def handle(event: Any, message: Message, session: AsyncSession) -> None:
            await session.execute(text("INSERT INTO seen VALUES (1, 'reader', 1, :title)"), {"title": event.title})
            for failure in failures:
                raise failure
            handled.append(message.version)

        for cls in classes:
            road.on(cls, group="reader")(handle)
        async with road.running():
            async with road.session() as session, session.begin():
                for title in ("first", "second"):
                    newer, older = both("v-1", title)
                    road.add(session, newer, also=[older])
            await road.drain()
            assert not await road.broker.dead_letters("catalog.video.events")
        assert await effects(road) == {"reader": 2}
        assert len(handled) == 2
        assert handled == sorted(handled, key=lambda version: version or 0)


@pytest.mark.spec("P8")
async def test_the_versions_of_a_fact_commit_together_or_not_at_all(database_url: str, tmp_path: Path) -> None:
    async with catalog(database_url, tmp_path) as road:
        newer, older = both("v-1")
        async with road.session() as session, session.begin() as transaction:
            road.add(session, newer, also=[older])
            await session.flush()
            await transaction.rollback()
        assert await rows(road) == []
        for _ in range(2):  # the same operation again writes nothing more
            async with road.session() as session, session.begin():
                added = road.add(session, newer, also=[older], idempotency_key="create v-1")
        assert [tuple(row[:2]) for row in await rows(road)] == [(1, 2), (2, 1)]
        async with road.store.engine.begin() as connection:  # not a session: awaited
            await road.add(connection, newer, also=[older])
        assert [tuple(row[:2]) for row in await rows(road)] == [(1, 2), (2, 1), (3, 2), (4, 1)]
        assert added.message.also_as == "v1"


@pytest.mark.spec("P8")
async def test_both_versions_travel_under_one_id_newest_first(database_url: str, tmp_path: Path) -> None:
    async with catalog(database_url, tmp_path) as road:
        newer, older = both("v-1")
        async with road.session() as session, session.begin():
            added = road.add(session, newer, also=[older])
        wire = await carried(road)
        told = [(m.id, m.version, m.attributes()["schema_version"], m.attributes().get("also_as")) for m in wire.sent]
        assert told == [(added.id, 1, "v2", "v1"), (added.id, 2, "v1", None)]
        envelopes = [v2.Event.FromString(wire.sent[0].payload), v1.Event.FromString(wire.sent[1].payload)]
        assert [(one.event_id, one.version) for one in envelopes] == [(str(added.id), 1), (str(added.id), 2)]
        assert {row.state for row in await rows(road)} == {"SENT"}


@pytest.mark.spec("P8")
async def test_it_is_no_different_in_json(sqlite_url: str, tmp_path: Path) -> None:
    async with catalog(sqlite_url, tmp_path) as road:
        handled: list[object] = []
        for group, kind in (("old", PaidV1), ("new", PaidV2)):
            road.on(kind, group=group)(lambda event: handled.append(event))
        async with road.running():
            async with road.session() as session, session.begin():
                road.add(session, PaidV2("o-1", "EUR"), also=[PaidV1("o-1")])
            await road.drain()
        assert len(handled) == 2
        assert {PaidV1("o-1"), PaidV2("o-1", "EUR")} == set(handled)


@pytest.mark.spec("P7")
async def test_people_can_read_what_is_in_an_envelope(sqlite_url: str, tmp_path: Path) -> None:
    async with catalog(sqlite_url, tmp_path) as road:
        async with road.session() as session, session.begin():
            added = road.add(session, v1.VideoCreated(video_id="v-1", title="Rain"))
        shown = await operations.outbox_event(road.store, road.outboxes, added.id)
        assert (shown.payload["event_id"], shown.payload["created"]["title"]) == (str(added.id), "Rain")


async def test_a_refused_copy_leaves_nothing_of_the_fact(database_url: str, tmp_path: Path) -> None:
    async with catalog(database_url, tmp_path) as road:
        newer, older = both("v-1")
        older.title = "a\0b"
        async with road.store.engine.begin() as connection:
            with pytest.raises(InvalidPayload, match="title"):
                road.add(connection, newer, also=[older])
        assert await rows(road) == []


@pytest.mark.spec("P8")
async def test_a_deploy_from_one_version_to_the_other_loses_no_fact(sqlite_url: str, tmp_path: Path) -> None:
    """The worker that gets v2 knows only v1, the one that gets v1 knows only v2: then it is kept for a person."""
    async with catalog(sqlite_url, tmp_path) as road:
        newer, older = both("v-1")
        async with road.session() as session, session.begin():
            added = road.add(session, newer, also=[older])
        wire = await carried(road)
        newest, oldest = wire.sent
        verdicts = [await verdict(road, v1.VideoCreated, newest), await verdict(road, v2.VideoCreatedV2, oldest)]
        assert [one[0] for one in verdicts] == ["ack", "dead"]
        record = await road.inbox.find("reader", added.id)
        assert record is not None
        assert record.status is Status.FAILED
        assert "no upcaster" in (record.error_msg or "")


async def verdict(road: Postroad, cls: type, message: Message) -> tuple[Any, ...]:
    """Of a worker that knows this class alone."""
    registry = Registry()
    registry.add("reader", cls, lambda event: None)
    worker = Subscriber(road.broker, road.inbox, registry, Upcasters(), "reader")
    return (await deliver(worker, [message]))[0]


async def test_what_cannot_be_one_fact_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    async with catalog(sqlite_url, tmp_path) as road:
        newer, older = both("v-1")
        async with road.session() as session, session.begin():
            with pytest.raises(ConfigurationError, match=r"has the name 'video\.deleted' and not 'video"):
                road.add(session, newer, also=[v1.VideoDeleted(video_id="v-1")])
            with pytest.raises(InvalidPayload, match="is another aggregate's id"):
                road.add(session, newer, also=[both("v-2")[1]])
            with pytest.raises(ConfigurationError, match="one schema version"):
                road.add(session, newer, also=[newer])
            with pytest.raises(InvalidPayload, match="version: cannot be given together with `also`"):
                road.add(session, newer, also=[older], version=7)
            with pytest.raises(ConfigurationError, match="was given the class VideoCreated"):
                road.add(session, newer, also=[v1.VideoCreated])
        assert await rows(road) == []


async def test_a_forgotten_await_of_a_fact_in_two_versions_is_told(sqlite_url: str, tmp_path: Path) -> None:
    async with catalog(sqlite_url, tmp_path) as road:
        newer, older = both("v-1")
        async with road.store.engine.connect() as connection:
            await connection.begin()
            with pytest.warns(RuntimeWarning, match="was NOT stored"):
                road.add(connection, newer, also=[older])
            await connection.rollback()


async def test_the_version_that_is_appended_has_its_room(sqlite_url: str, tmp_path: Path) -> None:
    async with catalog(sqlite_url, tmp_path) as road:
        event = v1.VideoCreated(video_id="v-1", title="x" * 10_000)
        async with road.session() as session, session.begin():
            message = road.add(session, event).message
            attributes = sum(len(name) + len(value) for name, value in message.attributes().items())
            road.outbox.max_message_bytes = len(message.payload) + attributes
            with pytest.raises(MessageTooLarge):
                road.add(session, event)
            road.outbox.max_message_bytes += 15
            road.add(session, event)


async def test_a_table_of_texts_takes_no_binary_events(sqlite_url: str, tmp_path: Path) -> None:
    table = OutboxTable("letters", payload="text")
    async with catalog(sqlite_url, tmp_path, outboxes=[table]) as road, road.session() as session, session.begin():
        with pytest.raises(ConfigurationError, match="is binary, but outbox letters"):
            road.add(session, v1.VideoCreated(video_id="v-1"))
