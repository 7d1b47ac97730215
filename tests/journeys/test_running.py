"""The block in which relay and consumers run: what it raises, what it leaves behind, how often it can be used."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from postroad import Postroad, event
from postroad.errors import ConfigurationError, InvalidName, InvalidPayload
from postroad.stores.migrations import migrate


@event("parcel.sent", topic="post.parcel.events", aggregate="parcel", key="parcel")
class ParcelSent(msgspec.Struct, frozen=True):
    parcel: str


def make_road(folder: Path, broker: str = "embedded:") -> tuple[Postroad, list[str]]:
    road, seen = Postroad("post", f"sqlite:///{folder}/post.db", broker), []

    @road.on(ParcelSent, group="readers")
    async def read(event: ParcelSent) -> None:
        seen.append(event.parcel)

    return road, seen


async def send(road: Postroad, parcel: str) -> None:
    async with road.session() as session, session.begin():
        road.add(session, ParcelSent(parcel=parcel))
    await road.drain(timeout=30)


async def test_what_the_block_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    road, _ = make_road(tmp_path)
    await road.migrate()
    async with road:
        with pytest.raises(ZeroDivisionError):
            async with road.running():
                raise ZeroDivisionError


async def test_a_part_that_fails_ends_the_block_with_its_error(tmp_path: Path) -> None:
    road, _ = make_road(tmp_path)
    await road.migrate()
    runner = road.runner()

    async def fail(stop: asyncio.Event) -> None:
        raise LookupError("the relay broke")

    runner.relays[0].run = fail  # type: ignore[method-assign]
    async with road:
        with pytest.raises(LookupError, match="the relay broke"):
            async with runner.started():
                await asyncio.Event().wait()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_being_cancelled_from_outside_stays_a_cancellation(tmp_path: Path) -> None:
    road, _ = make_road(tmp_path)
    await road.migrate()
    async with road:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), road.running():
                await asyncio.Event().wait()


async def test_blocks_leave_no_listeners_behind(tmp_path: Path) -> None:
    road, seen = make_road(tmp_path)
    await road.migrate()
    async with road:
        for parcel in ("a", "b"):
            async with road.running():
                await send(road, parcel)
        assert seen == ["a", "b"]
        assert not any(wake._listeners for wake in road.outbox.wakes.values())


@pytest.mark.parametrize("file", ["", "broker.db"])
@pytest.mark.parametrize("closes", [True, False])
def test_a_road_serves_one_event_loop_after_the_other(tmp_path: Path, file: str, closes: bool) -> None:
    road, seen = make_road(tmp_path, f"embedded:{tmp_path / file if file else ''}")

    async def once(parcel: str) -> None:
        await road.migrate()
        async with road.running():
            await send(road, parcel)
        if closes:
            await road.aclose()

    asyncio.run(once("first"))
    asyncio.run(once("second"))
    asyncio.run(road.aclose())
    assert seen == ["first", "second"]


async def test_closing_what_was_never_used_connects_nothing(tmp_path: Path) -> None:
    road = Postroad("post", f"sqlite:///{tmp_path}/post.db", "nosuchbroker:")
    await migrate(road.store, road.outboxes)
    await road.aclose()
    assert "broker" not in road.__dict__


async def test_a_database_in_memory_takes_several_transactions_at_once() -> None:
    road = Postroad("post", "sqlite://", "embedded:")
    await road.migrate()
    async with road, road.running(), road.session() as session:
        async with session.begin():
            await session.execute(text("CREATE TABLE note (n INTEGER)"))
            await session.execute(text("INSERT INTO note VALUES (1)"))
            await asyncio.sleep(0.1)  # the relay looks several times meanwhile
        assert (await session.execute(text("SELECT n FROM note"))).scalar() == 1


async def test_housekeeping_prunes_until_nothing_old_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    road, _ = make_road(tmp_path)
    batches = iter([1_000, 1_000, 7])

    async def prune(older_than: float, limit: int) -> int:
        assert (older_than, limit) == (road.inbox_retention, 1_000)
        return next(batches)

    await road.migrate()
    async with road:
        monkeypatch.setattr(road.inbox, "prune", prune)
        await road.runner()._prune()
    assert list(batches) == []


def test_wrong_arguments_are_told_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidName, match="source name 'My Shop'"):
        Postroad("My Shop")
    road, _ = make_road(tmp_path)
    with pytest.raises(ConfigurationError, match=r"given the class ParcelSent\. Give it an event: ParcelSent"):
        road.add(None, ParcelSent)
    with pytest.raises(InvalidPayload, match="idempotency_key: must not be empty"):
        road.add(None, ParcelSent(parcel="a"), idempotency_key="")
