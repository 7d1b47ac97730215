"""What every store must do. Subclass `StoreContract` and give it a `store` fixture, its database empty:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return open_store("my://host/empty")

Needs pytest-asyncio in auto mode. The suite migrates the store and closes it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

import pytest
from sqlalchemy import text

from postroad.brokers.base import Broker
from postroad.errors import NoTransaction, StoreBusy, VersionConflict
from postroad.message import SHARDS
from postroad.relay import Pruner
from postroad.relay.reader import DueReader
from postroad.retry import Backoff
from postroad.stores.base import Store, id_text
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.testing.faulty_broker import FaultyBroker
from postroad.testing.office import LONG_AGO, Office, Posted, opened

APPEND_ONLY = OutboxTable("postroad_facts", append_only=True)
SOON_PARKED = Backoff(attempts=2, base=60.0)


class StoreContract:
    @pytest.fixture(params=[DEFAULT_OUTBOX, APPEND_ONLY], ids=["in_row", "append_only"])
    def layout(self, request: pytest.FixtureRequest) -> OutboxTable:
        return cast(OutboxTable, request.param)

    @pytest.fixture
    async def office(self, store: Store, layout: OutboxTable) -> AsyncIterator[Office]:
        async with opened(store, layout) as office:
            yield office

    # --- writing

    async def test_business_row_and_event_commit_together(self, office: Office) -> None:
        await _business_table(office)
        async with office.store.session() as session, session.begin():
            await session.execute(text("INSERT INTO business VALUES ('a')"))
            office.outbox.add(session, Posted("a"))
        assert len(await office.query("SELECT id FROM business")) == len(await office.rows()) == 1

    async def test_rolling_back_leaves_neither(self, office: Office) -> None:
        await _business_table(office)
        with suppress(ZeroDivisionError):
            async with office.store.session() as session, session.begin():
                await session.execute(text("INSERT INTO business VALUES ('a')"))
                office.outbox.add(session, Posted("a"))
                await session.flush()
                raise ZeroDivisionError
        assert not await office.query("SELECT id FROM business")
        assert not await office.rows()
        await office.post("a")
        assert [row.version for row in await office.rows()] == [1]

    async def test_without_a_transaction_nothing_is_written(self, office: Office) -> None:
        async with office.store.session() as session:
            with pytest.raises(NoTransaction, match=r"async with session.begin\(\):"):
                office.outbox.add(session, Posted("a"))
        assert not await office.rows()

    async def test_versions_count_each_aggregate_and_follow_given_ones(self, office: Office) -> None:
        await office.post("a", "b", "a")
        await office.post("a", version=7)
        await office.post("a", "b")
        assert [(row.ordering_key, row.version) for row in await office.rows()] == [
            *(("parcel/a", version) for version in (1, 2, 7, 8)),
            *(("parcel/b", version) for version in (1, 2)),
        ]

    @pytest.mark.parametrize("version", [1, 2])
    async def test_a_version_already_reached_is_refused(self, office: Office, version: int) -> None:
        await office.post("a", "a")
        with pytest.raises(VersionConflict) as refused:
            await office.post("a", version=version)
        assert (refused.value.aggregate_id, refused.value.version) == ("a", version)
        assert len(await office.rows()) == 2

    async def test_a_version_that_was_left_out_is_past_as_well(self, office: Office) -> None:
        await office.post("a", version=7)
        with pytest.raises(VersionConflict):
            await office.post("a", version=5)
        assert [row.version for row in await office.rows()] == [7]

    async def test_an_idempotency_key_writes_once(self, office: Office) -> None:
        operation = UUID(int=7)
        (first,) = await office.post("a", idempotency_key=operation)
        (second,) = await office.post("a", idempotency_key=str(operation))
        assert first.id == second.id
        await office.post("a")
        assert [row.version for row in await office.rows()] == [1, 2]

    async def test_a_payload_comes_out_byte_for_byte(self, office: Office) -> None:
        notes = ["", "ä☃𝄞\u2028", "'\"\\;--%s:x{}$$", " \t trailing ", "x" * 70_000]
        async with office.store.session() as session, session.begin():
            added = [office.outbox.add(session, Posted(f"p{n}", note)) for n, note in enumerate(notes)]
        await office.carry()
        payloads = {message.aggregate_id: message.payload for message in office.broker.sent}
        assert payloads == {one.message.aggregate_id: one.message.payload for one in added}

    # --- reading and settling

    async def test_a_message_arrives_as_it_was_written(self, office: Office) -> None:
        (added,) = await office.post(
            "schlüssel ☃ x", tenant="t", headers={"a": "☃", "b": ""}, user_id="u", correlation_id="c" * 1_000
        )
        await office.carry()
        (message,) = office.broker.sent
        assert message.attributes() == {**added.message.attributes(), "version": "1"}
        assert message.topic == added.message.topic

    async def test_each_key_is_read_in_order_and_none_is_left_out(self, office: Office) -> None:
        await office.post(*(f"p{n % 20}" for n in range(100)))
        relay = await office.carry(batch=7)
        assert relay.statistics.sent == 100
        assert office.broker.first_arrivals() == {f"parcel/p{n}": list(range(1, 6)) for n in range(20)}
        assert set(await office.states()) == {"SENT"}

    async def test_a_parked_head_holds_back_its_key_only(self, office: Office) -> None:
        await office.post("a", "b", "a", "b")
        broker = _refusing(office, "a")
        relay = await office.carry(broker, backoff=SOON_PARKED)
        await office.make_due()
        await office.carry(broker, backoff=SOON_PARKED)
        assert await office.states() == ["FAILED", "NEW", "SENT", "SENT"]
        assert [row.attempts for row in await office.rows()] == [2, 0, 0, 0]
        assert "a is not welcome" in (await office.rows())[0].last_error
        assert relay.statistics.sent == 2

    async def test_a_waiting_head_is_sent_when_its_time_comes(self, office: Office) -> None:
        await office.post("a", "a")
        await office.carry(_refusing(office, "a"), backoff=SOON_PARKED)
        assert await office.states() == ["RETRY", "NEW"]
        await office.carry()
        assert office.broker.versions("a") == []
        await office.make_due()
        await office.carry()
        assert office.broker.versions("a") == [1, 2]

    async def test_parked_keys_do_not_hide_the_one_behind_them(self, office: Office) -> None:
        await office.post(*(f"p{n:03}" for n in range(60)), "z")
        await office.run("UPDATE {delivery} SET {state} = 'FAILED' WHERE {ordering_key} <> 'parcel/z'")
        await office.run("UPDATE {delivery} SET {shard} = 0")
        look = await DueReader(office.store, office.table, batch=4).read({0: 1})
        assert [due.message.aggregate_id for run in look.runs for due in run] == ["z"]

    async def test_the_pruner_removes_only_what_was_sent_long_ago(self, office: Office) -> None:
        await office.post("failed", "new", "old", "retry", "sent")
        await office.run("UPDATE {delivery} SET {published_at} = :then, {state} = 'SENT'", then=LONG_AGO)
        for state in ("failed", "new", "retry"):
            to = f"SET {{state}} = '{state.upper()}' WHERE {{ordering_key}} = 'parcel/{state}'"
            await office.run(f"UPDATE {{delivery}} {to}")
        await office.run("DELETE FROM {delivery} WHERE {ordering_key} = 'parcel/sent'")
        if office.table.append_only:
            await office.run("DELETE FROM {outbox} WHERE {aggregate_id} = 'sent'")
        await office.post("sent")
        await office.run("UPDATE {delivery} SET {next_attempt_at} = :then WHERE {state} <> 'SENT'", then="2999-01-01")
        await office.carry()
        pruner = Pruner(office.store, office.table, retention=3_600, batch=1)
        assert (await pruner.run_once(), await pruner.run_once()) == (1, 0)
        left = [row.aggregate_id for row in await office.query("SELECT {aggregate_id} AS aggregate_id FROM {outbox}")]
        assert sorted(left) == ["failed", "new", "retry", "sent"]
        assert len(await office.rows()) == 4

    async def test_the_pruner_forgets_workers_that_went_without_a_word(self, office: Office) -> None:
        gone, alive = office.relay(), office.relay()
        await gone.leases.keep()
        await office.expire_leases()
        await alive.leases.keep()
        await Pruner(office.store, office.table, retention=3_600).run_once()
        (left,) = await office.query("SELECT name FROM {workers}")
        assert left.name == alive.name

    # --- leases

    async def test_relays_share_the_shards_and_none_has_two_owners(self, office: Office) -> None:
        relays = [office.relay() for _ in range(3)]
        for _ in range(3):
            for relay in relays:
                await relay.leases.keep()
        held = [set(relay.leases.epochs) for relay in relays]
        assert sum(map(len, held)) == SHARDS == len(set().union(*held))
        assert max(map(len, held)) - min(map(len, held)) <= 2

    async def test_relays_that_start_at_once_take_different_shards(self, office: Office) -> None:
        relays = [office.relay() for _ in range(4)]
        for _ in range(3):
            await asyncio.gather(*(_until_done(relay.leases.keep) for relay in relays))
            held = [shard for relay in relays for shard in relay.leases.epochs]
            assert len(held) == len(set(held))
        # Who meets another's lock passes on; one after the other they find the rest.
        for relay in relays:
            await relay.leases.keep()
        assert sum(len(relay.leases.epochs) for relay in relays) == SHARDS

    async def test_a_silent_relay_is_succeeded_and_cannot_mark_any_more(self, office: Office) -> None:
        await office.post("a")
        zombie, successor = office.relay(), office.relay()
        await zombie.leases.keep()
        look = await DueReader(office.store, office.table, 10).read(zombie.leases.epochs)
        await office.expire_leases()
        await successor.leases.keep()
        assert len(successor.leases.epochs) == SHARDS
        (due,) = look.runs[0]
        await zombie.carrier.mark([due], [])
        assert await office.states() == ["NEW"]
        assert zombie.leases.epochs == {}

    async def test_leases_handed_back_are_free_at_once(self, office: Office) -> None:
        first, second = office.relay(), office.relay()
        await first.leases.keep()
        await first.leases.release()
        await second.leases.keep()
        assert (first.leases.epochs, len(second.leases.epochs)) == ({}, SHARDS)

    @pytest.mark.parametrize("stale", ["token", "epoch", "outbox"])
    async def test_marks_need_the_current_lease(self, office: Office, stale: str) -> None:
        await office.post("a", "b")
        relay = office.relay()
        await relay.leases.keep()
        look = await DueReader(office.store, office.table, 10).read(relay.leases.epochs)
        (sent,), (failed,) = sorted(look.runs, key=lambda run: run[0].message.aggregate_id)
        lease: dict[str, Any] = {"token": relay.leases.token, "outbox_name": office.table.name}
        if stale == "token":
            lease["token"] = UUID(int=1)
        elif stale == "outbox":
            lease["outbox_name"] = "other"
        off = 1 if stale == "epoch" else 0
        async with office.store.transaction() as connection:
            await office.store.execute(
                connection, "mark_sent", outbox=office.table, ids=[id_text(sent.row_id)],
                shards=[sent.shard], epochs=[sent.epoch - off], **lease,
            )  # fmt: skip
            await office.store.execute(
                connection, "mark_failed", outbox=office.table, event_id=failed.row_id,
                epoch=failed.epoch - off, state="FAILED", error="", wait=0.0, **lease,
            )  # fmt: skip
        assert await office.states() == ["NEW", "NEW"]

    async def test_what_is_sent_stays_sent(self, office: Office) -> None:
        await office.post("a")
        relay = office.relay()
        await relay.leases.keep()
        ((due,),) = (await DueReader(office.store, office.table, 10).read(relay.leases.epochs)).runs
        await relay.carrier.mark([due], [])
        await office.run("UPDATE {delivery} SET {published_at} = :then", then=LONG_AGO)
        async with office.store.transaction() as connection:
            assert await relay.carrier._mark_failed(connection, due, "late", None) == 0
        await relay.carrier.mark([due], [])
        assert await office.states() == ["SENT"]
        sent = await office.query("SELECT 1 FROM {delivery} WHERE {published_at} = :then", then=LONG_AGO)
        assert len(sent) == 1


async def _business_table(office: Office) -> None:
    await office.run("CREATE TABLE business (id VARCHAR(40) PRIMARY KEY)")


def _refusing(office: Office, parcel: str) -> FaultyBroker:
    return FaultyBroker(
        cast(Broker, office.broker),
        refuse=lambda message: f"{parcel} is not welcome" if message.aggregate_id == parcel else None,
    )


async def _until_done(act: Callable[[], Awaitable[None]]) -> None:
    """Again while the store is busy, as the relay does it."""
    while True:
        with suppress(StoreBusy):
            await act()
            return
