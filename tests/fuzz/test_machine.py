"""One machine on every store: it writes, carries, stalls, breaks off, consumes, repairs; the oracle tells the outcome.

Each store must agree with the oracle after every step, and so they agree with each other.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from postroad.errors import BusinessError, ConsumeFailed, LeaseLost, OperationRefused, PoisonError, VersionConflict
from postroad.inbox import ConsumeOptions, Inbox
from postroad.message import Message
from postroad.operations import retry_events, skip_event
from postroad.outbox import Added, Outbox
from postroad.relay import Pruner
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.testing.office import Moved, Posted, RecordingBroker
from tests.fuzz.conftest import bounded
from tests.fuzz.oracle import ATTEMPTS, LEASE, LONG, RETENTION, SHORT, WAIT, Conflict, Fate, Oracle
from tests.fuzz.world import Carrier, World

EXAMPLES, STEPS = 20, 30
GROUPS = ("INVENTORY", "MAIL")
ERRORS = {"transient": ValueError, "business": BusinessError, "poison": PoisonError}
OPTIONS = ConsumeOptions(lock_ttl=LEASE, max_retry=ATTEMPTS - 1, base_backoff=WAIT, max_backoff=WAIT)


class Undo(Exception):
    """Rolls back what the machine has decided not to keep."""


adds = st.tuples(
    st.sampled_from("aabbcd"),
    st.sampled_from([Posted, Posted, Moved]),
    st.none() | st.none() | st.integers(1, 12),
    st.none() | st.sampled_from("xxy"),
)
steps = st.lists(adds | st.tuples(st.lists(adds, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=5)


class Machine(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        world = self.world
        world.run(world.empty())
        self.oracle, self.recording = Oracle(), RecordingBroker()
        self.outbox = Outbox(world.store, "office")
        self.inbox = Inbox(world.store, horizon=1.0)
        self.pruner = Pruner(world.store, DEFAULT_OUTBOX, retention=RETENTION)
        self.carriers = [self.carrier(), self.carrier()]
        self.ids: list[Any] = []
        self.held: list[tuple[Any, int]] = []

    def carrier(self) -> Carrier:
        return Carrier(self.world.store, self.recording, self.oracle.refused, self.oracle.now)

    # -- writing ---------------------------------------------------------------------------------------

    @initialize()
    def begin_with_something_to_consume(self) -> None:
        self.write([(parcel, Posted, None, None) for parcel in "aaabb"], True, True)
        self.carry(0)

    @rule(steps=steps, kept=st.sampled_from([True, True, True, False]), session=st.booleans())
    def write(self, steps: list[Any], kept: bool, session: bool) -> None:
        script: list[Any] = []
        told = self.world.run(self.write_in(session, steps, kept, script))
        assert told == self.foretell(script, kept, session)

    @rule(parcels=st.permutations("abc"), key=st.integers(0, 9).map(str), session=st.booleans())
    def write_one_operation_for_several(self, parcels: list[str], key: str, session: bool) -> None:
        """The same id for all of them, so only one can be written: the first, in the order of writing."""
        self.write([(parcel, Posted, None, key) for parcel in parcels], True, session)

    async def write_in(self, session: bool, steps: list[Any], kept: bool, script: list[Any]) -> str:
        opened: Any = self.world.store.session() if session else self.world.store.engine.connect()
        try:
            async with opened as target, target.begin():
                for step in steps:
                    if len(step) == 2:
                        await self.savepoint(target, *step, script)
                    else:
                        await self.add(target, step, script)
                await self.flush(target)
                if not kept:
                    raise Undo
        except VersionConflict:
            return "conflict"
        except Undo:
            return "undone"
        return "kept"

    async def savepoint(self, target: Any, inner: list[Any], kept: bool, script: list[Any]) -> None:
        await self.flush(target)
        within: list[Any] = []
        script.append((within, kept))
        try:
            async with target.begin_nested():
                for step in inner:
                    await self.add(target, step, within)
                await self.flush(target)
                if not kept:
                    raise Undo
        except (Undo, VersionConflict):
            pass

    async def flush(self, target: AsyncSession | AsyncConnection) -> None:
        if isinstance(target, AsyncSession):
            await target.flush()

    async def add(self, target: Any, step: Any, script: list[Any]) -> None:
        parcel, kind, version, key = step
        added: Added = self.outbox.add(target, kind(parcel), version=version, idempotency_key=key)
        script.append((added.id, parcel, added.message.topic, version))
        self.ids.append(added.id)
        await added

    def foretell(self, script: list[Any], kept: bool, session: bool) -> str:
        before = dict(self.oracle.rows), dict(self.oracle.counters)
        try:
            self.play(script, session)
        except Conflict:
            self.oracle.rows, self.oracle.counters = before
            return "conflict"
        if not kept:
            self.oracle.rows, self.oracle.counters = before
        return "kept" if kept else "undone"

    def play(self, script: list[Any], session: bool) -> None:
        """A session writes what has gathered when it flushes, sorted by aggregate; a connection writes at once."""
        gathered: list[Any] = []
        for entry in [*script, ([], True)]:
            if len(entry) == 4:
                gathered.append(entry)
                continue
            for one in sorted(gathered, key=lambda one: one[1]) if session else gathered:
                self.oracle.add(*one)
            gathered = []
            before = dict(self.oracle.rows), dict(self.oracle.counters)
            within, kept = entry
            try:
                for one in sorted(within, key=lambda one: one[1]) if session else within:
                    self.oracle.add(*one)
            except Conflict:
                kept = False
            if not kept:
                self.oracle.rows, self.oracle.counters = before

    # -- carrying --------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 1))
    def carry(self, which: int) -> None:
        carrier = self.carriers[which]
        self.world.run(carrier.carry())
        self.oracle.carry(carrier.holder)

    @rule(which=st.integers(0, 1), kind=st.sampled_from(["unavailable", "lost_confirm"]), cut=st.integers(0, 5))
    def break_off(self, which: int, kind: str, cut: int) -> None:
        carrier, fate = self.carriers[which], Fate(kind, cut)
        assert self.world.run(carrier.round(fate)) == self.oracle.round(carrier.holder, fate)

    @rule(refused=st.sampled_from(["", "a", "ab"]))
    def stall_while_the_other_takes_over(self, refused: str) -> None:
        """The process stands still between the broker's answer and the mark, for longer than its lease."""
        self.oracle.refused ^= self.oracle.refused ^ set(refused)
        self.write([("a", Posted, None, None), ("b", Posted, None, None)], True, True)
        carrier, other = sorted(self.carriers, key=lambda one: len(one.holder.held), reverse=True)

        async def interlude() -> None:
            await self.world.age(LONG)
            other.clock.shift(LONG)
            await other.carry()

        carrier.broker.interlude = interlude
        told = self.world.run(carrier.round(Fate()))
        stalled, carrier.broker.interlude = carrier.broker.interlude is None, None
        oracle, runs, at = self.oracle, self.oracle.runs(carrier.holder), self.oracle.now
        assert stalled == bool(runs)
        if stalled:
            epochs, answers = dict(carrier.holder.held), oracle.send(runs, Fate())
            oracle.now += LONG
            oracle.carry(other.holder)
            assert told == oracle.settle(carrier.holder, runs, answers, epochs, at)
            carrier.clock.shift(LONG)

    @rule()
    def stall_with_a_refusal_in_hand(self) -> None:
        """What the other has counted already must not be counted again."""
        self.let_time_pass(LONG)
        self.stall_while_the_other_takes_over("ab")

    @rule(which=st.integers(0, 1))
    def die_silently(self, which: int) -> None:
        self.carriers[which] = self.carrier()

    @rule(parcel=st.sampled_from("abcd"))
    def refuse_or_take_again(self, parcel: str) -> None:
        self.oracle.refused ^= {parcel}

    @rule(seconds=st.sampled_from([SHORT, LONG]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.run(self.world.age(seconds))
        for carrier in self.carriers:
            carrier.clock.shift(seconds)
        self.oracle.now += seconds

    @rule()
    def prune(self) -> None:
        assert self.world.run(self.pruner.run_once()) == self.oracle.prune()

    # -- by hand ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0, 99), skip=st.booleans())
    def retry_or_skip(self, which: int, skip: bool) -> None:
        parked = [row.id for row in self.oracle.rows.values() if row.state in ("FAILED", "RETRY")]
        # Mostly one for which it is allowed.
        id = (parked * 3 + self.ids)[which % (len(parked) * 3 + len(self.ids))]
        assert self.world.run(self.by_hand(id, skip)) == (self.oracle.skip(id) if skip else self.oracle.retry(id))

    async def by_hand(self, id: Any, skip: bool) -> bool:
        try:
            if skip:
                await skip_event(self.world.store, [DEFAULT_OUTBOX], id, actor="me", reason="why not")
            else:
                await retry_events(self.world.store, [DEFAULT_OUTBOX], [id], actor="me")
        except OperationRefused:
            return False
        return True

    # -- consuming -------------------------------------------------------------------------------------

    @precondition(lambda self: self.recording.sent)
    @rule(which=st.integers(0, 99), group=st.sampled_from(GROUPS), how=st.sampled_from(["well", "well", *ERRORS]))
    def consume(self, which: int, group: str, how: str) -> None:
        message = self.message(which)
        told = self.world.run(self.consume_it(group, message, how))
        expected = self.oracle.acquire(group, message.id, message.aggregate_id, message.version or 0)
        if expected == "taken":
            expected = how
            if how == "well":
                self.oracle.succeed(group, message.id, self.oracle.inbox[group, message.id].epoch)
            else:
                self.oracle.fail(group, message.id, how)
        assert told == expected

    @precondition(lambda self: self.recording.sent)
    @rule(group=st.sampled_from(GROUPS), how=st.lists(st.sampled_from(["well", "transient", *ERRORS]), min_size=2))
    def consume_one_after_another(self, group: str, how: list[str]) -> None:
        for which, one in enumerate(how[: len(self.recording.sent)]):
            self.consume(which, group, one)

    def message(self, which: int) -> Message:
        """One of those that came first: their keys wait for each other."""
        return self.recording.sent[which % min(8, len(self.recording.sent))]

    async def consume_it(self, group: str, message: Message, how: str) -> str:
        async def handler(message: Message, session: AsyncSession) -> None:
            await session.execute(
                text("INSERT INTO fuzz_effect VALUES (:group, :id)"), {"group": group, "id": str(message.id)}
            )
            if how != "well":
                raise ERRORS[how]("no")

        try:
            result = await self.inbox.consume(group, message, handler, OPTIONS)
        except ConsumeFailed:
            return "stopped"
        except tuple(ERRORS.values()):
            return how
        return "replayed" if result.replayed else "busy" if result.in_progress else "well"

    @precondition(lambda self: self.recording.sent)
    @rule(which=st.integers(0, 99), group=st.sampled_from(GROUPS))
    def take_and_hold(self, which: int, group: str) -> None:
        message = self.message(which)
        acquired = self.world.run(self.inbox.try_acquire(group, message, LEASE))
        expected = self.oracle.acquire(group, message.id, message.aggregate_id, message.version or 0)
        assert (acquired.lease is not None) == (expected == "taken")
        if acquired.lease is not None:
            self.held.append((acquired.lease, self.oracle.inbox[group, message.id].epoch))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def finish_what_was_held(self, which: int) -> None:
        lease, epoch = self.held.pop(which % len(self.held))
        assert self.world.run(self.finish(lease)) == self.oracle.succeed(lease.group, lease.event_id, epoch)

    async def finish(self, lease: Any) -> bool:
        try:
            async with self.world.store.transaction() as connection:
                await connection.execute(
                    text("INSERT INTO fuzz_effect VALUES (:group, :id)"),
                    {"group": lease.group, "id": str(lease.event_id)},
                )
                await self.inbox.mark_success(connection, lease)
        except LeaseLost:
            return False
        return True

    @precondition(lambda self: self.oracle.inbox)
    @rule(which=st.integers(0, 99), discard=st.booleans())
    def retry_or_discard_a_record(self, which: int, discard: bool) -> None:
        group, id = list(self.oracle.inbox)[which % len(self.oracle.inbox)]
        if discard:
            assert self.world.run(self.inbox.discard(group, id)) == self.oracle.discard_record(group, id)
        else:
            assert self.world.run(self.inbox.retry(group, id)) == self.oracle.retry_record(group, id)

    @rule()
    def prune_the_inbox(self) -> None:
        assert self.world.run(self.inbox.prune(RETENTION)) == self.oracle.prune_inbox()

    # -- after every step ------------------------------------------------------------------------------

    @invariant()
    def the_store_agrees(self) -> None:
        self.world.run(self.compare())
        assert [(message.id, message.version) for message in self.recording.sent] == self.oracle.sent

    async def compare(self) -> None:
        world, oracle = self.world, self.oracle
        rows = {
            world.store.id_out(row[0]): (*row[1:-1], row[-1] is not None)
            for row in await world.rows(
                "SELECT event_id, aggregate_id, topic, version, state, attempts, next_attempt_at FROM postroad_outbox"
            )
        }
        assert rows == {
            r.id: (r.parcel, r.topic, r.version, r.state, r.attempts, r.due is not None) for r in oracle.rows.values()
        }
        counters = await world.rows("SELECT aggregate_id, version FROM postroad_version WHERE version > 0")
        assert {row[0]: row[1] for row in counters} == oracle.counters
        records = {
            (row[0], world.store.id_out(row[1])): (*row[2:-3], *(value is not None for value in row[-3:]))
            for row in await world.rows(
                "SELECT consumer_group, event_id, version, status, epoch, retry_count, waiting_key,"
                " locked_until, next_retry_at, processed_at FROM postroad_inbox"
            )
        }
        assert records == {
            place: (
                r.version, r.status, r.epoch, r.failures, r.waiting,
                r.locked is not None, r.due is not None, r.processed is not None,
            )
            for place, r in oracle.inbox.items()
        }  # fmt: skip
        effects = await world.rows("SELECT consumer, event_id FROM fuzz_effect")
        assert sorted(tuple(row) for row in effects) == sorted(oracle.effects)

    def teardown(self) -> None:
        self.outbox.close()
        self.world.run(self.inbox.aclose())


@pytest.mark.spec("F2", "F4", "F5", "P10")
@pytest.mark.timeout(900)
def test_the_store_does_what_the_oracle_says(store_kind: str, store_url: str, loop: asyncio.Runner) -> None:
    world = World(store_kind, store_url, loop)
    machine = type("Machine", (Machine,), {"world": world})
    try:
        run_state_machine_as_test(machine, settings=bounded(EXAMPLES, stateful_step_count=STEPS))
    finally:
        world.close()
