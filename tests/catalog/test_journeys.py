"""From an edit on the write side to what a reader finds, on the embedded default and on PostgreSQL with Pub/Sub."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import text, update

from examples.catalog.api import create_app
from examples.catalog.events import CANARY, READER, TOPIC
from examples.catalog.protos.video.v1.events_pb2 import Event
from examples.catalog.reader import Reader
from examples.catalog.refusals import VersionConflict
from examples.catalog.schema import videos
from examples.catalog.writer import SOURCE, Writer
from postroad.operations import outbox_page
from postroad.operations.outbox import outbox_message
from postroad.telemetry.telemetry import Telemetry
from tests.catalog.conftest import Places
from tests.support.telemetry import eventually as seen

PATIENCE = 30.0


async def eventually(look: Callable[[], Awaitable[Any]]) -> Any:
    """What the look gives, once it gives anything."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.02)


async def followed(client: httpx.AsyncClient, video_id: str, version: int) -> dict[str, Any]:
    """The read side's row, once it has come so far."""

    async def look() -> dict[str, Any] | None:
        found = (await client.get(f"/search/{video_id}")).json()
        return found if found.get("version", 0) >= version else None

    return dict(await eventually(look))


async def gone(client: httpx.AsyncClient, video_id: str) -> None:
    async def look() -> bool:
        return (await client.get(f"/search/{video_id}")).status_code == 404

    await eventually(look)


@pytest.mark.spec("F1", "F7", "P7")
async def test_what_is_written_is_found(client: httpx.AsyncClient, rain: dict[str, object]) -> None:
    made = (await client.post("/videos", json=rain)).json()
    assert (made["version"], made["status"], made["media_status"]) == (1, "draft", "pending")
    found = await followed(client, made["video_id"], 1)
    assert {**found, "updated_at": 0} == {**made, "updated_at": 0}

    edited = {"version": 1, "title": "Rain, louder", "status": "published", "duration_micros": 7}
    assert (await client.patch(f"/videos/{made['video_id']}", json=edited)).json()["version"] == 2
    found = await followed(client, made["video_id"], 2)
    assert (found["title"], found["status"], found["duration_micros"]) == ("Rain, louder", "published", 7)
    assert found["description"] == "On a tin roof"  # nobody changed it
    assert [one["title"] for one in (await client.get("/search?q=LOUD+roof")).json()] == ["Rain, louder"]
    assert (await client.get("/search?q=thunder")).json() == []

    deleted = await client.delete(f"/videos/{made['video_id']}", params={"version": 2, "reason": "withdrawn"})
    assert deleted.status_code == 204
    await gone(client, made["video_id"])
    told = sorted((one["version"], one["type"]) for one in (await client.get("/events")).json())
    assert told == [(1, "video.created"), (2, "video.updated"), (3, "video.deleted")]


@pytest.mark.parametrize("store_kind", ["sqlite"])
@pytest.mark.spec("P7")
async def test_the_payload_is_the_envelope_and_an_update_says_only_what_changed(
    client: httpx.AsyncClient, writer: Writer, rain: dict[str, object]
) -> None:
    video_id = (await client.post("/videos", json=rain)).json()["video_id"]
    same_and_new = {"version": 1, "title": "Rain", "description": "Louder"}
    await client.patch(f"/videos/{video_id}", json=same_and_new)
    events = await outbox_page(writer.road.store, writer.road.outboxes)
    created, updated = sorted(events, key=lambda event: event.version or 0)
    read = Event.FromString((await outbox_message(writer.road.store, writer.road.outboxes, created.id)).payload)
    assert (read.version, read.aggregate_id, read.created.title) == (1, video_id, "Rain")
    assert (read.created.version, read.created.HasField("published_at")) == (1, False)
    read = Event.FromString((await outbox_message(writer.road.store, writer.road.outboxes, updated.id)).payload)
    assert (read.version, read.updated.description.value, read.updated.HasField("title")) == (2, "Louder", False)


async def test_of_two_who_saw_the_same_version_one_changes_it(
    client: httpx.AsyncClient, rain: dict[str, object]
) -> None:
    video_id = (await client.post("/videos", json=rain)).json()["video_id"]
    edits = [client.patch(f"/videos/{video_id}", json={"version": 1, "title": f"Rain {n}"}) for n in range(8)]
    answers = await asyncio.gather(*edits)
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    winner = next(answer for answer in answers if answer.status_code == 200).json()
    found = await followed(client, video_id, 2)
    assert (found["title"], found["version"]) == (winner["title"], 2)
    assert len((await client.get("/events")).json()) == 2


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_an_editor_who_is_overtaken_between_reading_and_writing_is_told(
    writer: Writer, rain: dict[str, object]
) -> None:
    """The look before the change cannot see it: only the condition of the change itself does."""
    await writer.prepare()
    states = {"status": "draft", "media_status": "ready", "analysis_status": "ready"}
    video_id = (await writer.create({**rain, **states}))["video_id"]
    async with writer.road.session() as overtaking:
        await overtaking.begin()
        await overtaking.execute(update(videos).where(videos.c.video_id == video_id).values(version=2))
        late = asyncio.create_task(writer.update(video_id, 1, {"title": "Late"}))
        await eventually(partial(_waiting, writer))  # it has read version 1, and waits for the row
        await overtaking.commit()
    with pytest.raises(VersionConflict, match="is at version 2, not 1"):
        await late
    assert len(await outbox_page(writer.road.store, writer.road.outboxes, limit=9)) == 1
    await writer.road.aclose()


async def _waiting(writer: Writer) -> bool:
    async with writer.road.session() as session:
        locked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool((await session.execute(text(locked))).scalar())


@pytest.mark.parametrize("store_kind", ["sqlite"])
@pytest.mark.spec("F12")
async def test_api_relay_and_consumer_apart_do_the_same(
    writer: Writer, reader: Reader, places: Places, rain: dict[str, object]
) -> None:
    relaying, consuming = Writer(places.writes, places.broker), Reader(places.reads, places.broker)
    app = create_app(writer, reader, run=False)
    web = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://catalog")
    async with app.router.lifespan_context(app), web as client:
        assert (await client.get("/readyz")).status_code == 200
        video_id = (await client.post("/videos", json=rain)).json()["video_id"]
        async with consuming.road.running(relay=False), relaying.road.running(groups=[]):
            assert (await followed(client, video_id, 1))["title"] == "Rain"
    for road in (relaying.road, consuming.road):
        await road.aclose()


async def test_a_canary_of_the_write_side_comes_to_the_reader_and_not_onto_the_page(
    writer: Writer, reader: Reader, places: Places, rain: dict[str, object]
) -> None:
    relaying, telemetry = Writer(places.writes, places.broker, CANARY), Telemetry(reader.road)
    app = create_app(writer, reader, run=False)
    web = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://catalog")
    route = {"topic": TOPIC, "group": READER, "source": SOURCE}
    async with app.router.lifespan_context(app), web as client:
        await client.post("/videos", json=rain)
        async with reader.road.running(relay=False), relaying.road.running(groups=[]):
            await seen(telemetry, lambda told: told("canary_age_seconds", **route) is not None)
        assert [one["type"] for one in (await client.get("/events")).json()] == ["video.created"]
    await relaying.road.aclose()
