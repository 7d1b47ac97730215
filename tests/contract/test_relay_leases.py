"""Who may send what: relays that come, go, stall and wake up again as zombies."""

import asyncio

import pytest

from postroad.brokers.base import Outcome
from postroad.message import SHARDS, Message
from postroad.testing import VirtualClock
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Office, RecordingBroker
from tests.support.outbox import until


@pytest.mark.spec("F4")
async def test_a_new_relay_gets_its_share_and_gives_it_back_when_it_leaves(office: Office) -> None:
    first, second = office.relay(), office.relay()
    await first.leases.keep()
    assert len(first.leases.epochs) == SHARDS
    await second.leases.keep()
    assert second.leases.epochs == {}
    await first.leases.keep()
    await second.leases.keep()
    assert len(first.leases.epochs) == len(second.leases.epochs) == SHARDS // 2
    await second.leases.release()
    await first.leases.keep()
    assert len(first.leases.epochs) == SHARDS


async def test_a_relay_that_left_asks_for_shards_at_once_when_it_runs_again(office: Office) -> None:
    relay = office.relay()
    await relay.leases.keep()
    assert not relay.leases.due()
    await relay.leases.release()
    assert relay.leases.due()


async def test_a_relay_that_lost_some_takes_no_more_than_its_share_again(office: Office) -> None:
    first, second = office.relay(), office.relay()
    await first.leases.keep()
    await second.leases.keep()
    await first.leases.keep()
    lost = sorted(first.leases.epochs)[:3]
    await office.run(f"UPDATE {{shards}} SET token = NULL WHERE shard <= {lost[-1]} AND outbox = 'postroad_outbox'")
    await first.leases.keep()
    assert len(first.leases.epochs) == SHARDS // 2


@pytest.mark.spec("F4", "F15")
async def test_a_dead_relays_events_are_sent_by_another_after_the_lease(office: Office) -> None:
    await office.post("a", "b")
    dead, heir = office.relay(), office.relay()
    await dead.leases.keep()
    assert await heir.run_once() == 0
    await office.expire_leases()
    heir.leases.doubt()
    assert await heir.run_once() == 2
    assert await office.states() == ["SENT", "SENT"]


async def test_a_live_relay_keeps_its_shards_however_often_it_renews(office: Office) -> None:
    relay = office.relay()
    await relay.leases.keep()
    before = dict(relay.leases.epochs)
    for _ in range(3):
        await relay.leases.keep()
    assert relay.leases.epochs == before


async def test_a_relay_that_was_away_longer_than_its_lease_sends_nothing(office: Office) -> None:
    """It may have been stopped between reading and sending; by its own clock it must notice."""
    clock = VirtualClock()
    office.clock = clock
    await office.post("a")
    relay = office.relay(lease=15.0)
    await relay.leases.keep()
    look = await relay._reader.read(relay.leases.epochs)
    clock.shift(13.4)
    assert len(relay.leases.epochs) == SHARDS
    clock.shift(0.2)
    assert relay.leases.epochs == {}
    assert await relay.carrier.carry(look.runs) == 0
    assert office.broker.sent == []
    assert relay.breaker.open_destinations == []


async def test_a_lease_counts_for_nine_tenths_of_its_time_and_not_a_moment_longer(office: Office) -> None:
    clock = VirtualClock()
    office.clock = clock
    relay = office.relay(lease=10.0)
    await relay.leases.keep()
    clock.shift(9.0)
    assert relay.leases.epochs == {}


@pytest.mark.parametrize(("lease", "early", "due"), [(15.0, 0.99, 1.0), (0.6, 0.19, 0.2)])
async def test_a_lease_is_renewed_after_a_third_of_it_or_a_second(
    office: Office, lease: float, early: float, due: float
) -> None:
    clock = VirtualClock()
    office.clock = clock
    relay = office.relay(lease=lease)
    await relay.leases.keep()
    clock.shift(early)
    assert not relay.leases.due()
    clock.shift(due - early)
    assert relay.leases.due()


@pytest.mark.spec("F4")
async def test_a_zombie_marks_nothing_and_asks_before_it_goes_on(office: Office) -> None:
    await office.post(*"aab")
    zombie, heir = office.relay(), office.relay()

    class Stalling(RecordingBroker):
        """While this send hangs, the lease runs out and somebody else takes over."""

        async def send(self, batch: list[Message]) -> list[Outcome]:
            await office.expire_leases()
            await heir.leases.keep()
            return list(await super().send(batch))

    zombie.carrier._broker = Stalling()
    await zombie.run_once()
    assert await office.states() == ["NEW", "NEW", "NEW"]
    assert zombie.leases.epochs == {}
    assert zombie.leases.due()
    assert await heir.run_once() == 3
    assert await office.states() == ["SENT", "SENT", "SENT"]
    assert await zombie.run_once() == 0


async def test_leases_are_renewed_while_a_slow_broker_makes_us_wait(office: Office) -> None:
    """Else another would take over in the middle of each send, be as slow, and nothing would be marked."""
    clock = VirtualClock()
    office.clock = clock
    office.store = counting = FaultyStore(office.store)
    renewed = asyncio.Event()
    execute = counting.execute

    async def watched(connection, statement, /, *arguments, **values):
        result = await execute(connection, statement, *arguments, **values)
        if statement == "lease_renew":
            renewed.set()
        return result

    counting.execute = watched

    class Slow(RecordingBroker):
        async def send(self, batch: list[Message]) -> list[Outcome]:
            for _ in range(5):
                renewed.clear()
                await until(lambda: (clock.next_alarm() or 1_000) <= clock.monotonic() + 5)
                clock.shift(5)
                await asyncio.wait_for(renewed.wait(), 30)
            return list(await super().send(batch))

    await office.post("a")
    relay = office.relay(Slow(), lease=15.0, publish_timeout=60.0)
    assert await relay.run_once() == 1
    assert await office.states() == ["SENT"]
    assert len(relay.leases.epochs) == SHARDS


async def test_a_relay_that_marked_all_it_sent_has_no_doubts(office: Office) -> None:
    office.clock = VirtualClock()
    await office.post("a")
    relay = office.relay()
    assert await relay.run_once() == 1
    assert len(relay.leases.epochs) == SHARDS
    assert not relay.leases.due()


@pytest.mark.parametrize(("lease", "beat"), [(6.0, 2.0), (60.0, 5.0)])
async def test_it_renews_three_times_a_lease_while_it_waits_and_leaves_nothing_running(
    office: Office, lease: float, beat: float
) -> None:
    """More often where the lease is long: it is to be seen alive, too."""
    clock = VirtualClock()
    office.clock = clock
    relay = office.relay(lease=lease)
    await relay.leases.keep()
    others = asyncio.all_tasks()
    async with relay.leases.kept_alive():
        await clock.advance(0)
        assert clock.next_alarm() == beat
    assert asyncio.all_tasks() == others


async def test_a_renewal_that_finds_less_than_expected_makes_doubtful(office: Office) -> None:
    relay = office.relay()
    await relay.leases.keep()
    await office.run("UPDATE {shards} SET token = NULL WHERE shard = 3 AND outbox = 'postroad_outbox'")
    await relay.leases._renew_all()
    assert relay.leases.epochs == {}
    await relay.leases.keep()
    assert len(relay.leases.epochs) == SHARDS


async def test_a_renewal_that_fails_lets_the_lease_run_dry(office: Office) -> None:
    clock = VirtualClock()
    office.clock = clock
    office.store = faulty = FaultyStore(office.store)
    relay = office.relay(lease=15.0)
    await relay.leases.keep()
    faulty.down = True
    clock.shift(10)
    await relay.leases._renew_all()
    assert relay.leases.epochs
    clock.shift(4)
    assert relay.leases.epochs == {}


async def test_each_take_raises_the_epoch_and_a_renewal_does_not(office: Office) -> None:
    first, second = office.relay(), office.relay()
    await first.leases.keep()
    assert set(first.leases.epochs.values()) == {1}
    await first.leases.keep()
    assert set(first.leases.epochs.values()) == {1}
    await office.expire_leases()
    await second.leases.keep()
    assert set(second.leases.epochs.values()) == {2}
    assert await first.leases._renew_all() is None
    assert first.leases.epochs == {}


async def test_outboxes_are_leased_apart(office: Office) -> None:
    relays = [office.relay(outbox=table) for table in office.tables]
    for relay in relays:
        await relay.leases.keep()
    assert {len(relay.leases.epochs) for relay in relays} == {SHARDS}


async def test_an_expired_lease_that_nobody_took_is_still_ours_to_mark(office: Office) -> None:
    await office.post("a")
    relay = office.relay()
    await relay.leases.keep()
    await office.expire_leases()
    assert await relay.run_once() == 1
    assert await office.states() == ["SENT"]
