"""Several events in one commit: as one list, or in turn; and one by one as soon as something is wrong."""

from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.context import current_message, origin
from postroad.errors import StoreUnavailable
from postroad.handlers import Registry
from postroad.message import Message
from postroad.outbox import Outbox
from postroad.retry import Retry
from tests.support.consuming import (
    GROUP,
    Bench,
    OrderCancelled,
    OrderPlaced,
    bench,
    deliver,
    effect,
    placed,
    subscriber,
)


class Lists:
    """A batch handler that cannot stand some numbers."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls = bad, []

    async def __call__(self, events: list[OrderPlaced], session: AsyncSession, messages: list[Message]) -> None:
        self.calls.append([event.n for event in events])
        assert [message.version for message in messages] == self.calls[-1]
        for event in events:
            await effect(session, f"{event.order_id}/{event.n}")
            if event.n in self.bad:
                raise RuntimeError(f"cannot stand {event.n}")


class Turns(Lists):
    """The same, one event at a time."""

    async def __call__(self, event: OrderPlaced, session: AsyncSession, message: Message) -> None:  # type: ignore[override]
        assert current_message.get() is message
        await super().__call__([event], session, [message])


def batches(handler: Any, **options: Any) -> Registry:
    registry = Registry()
    registry.add(GROUP, OrderPlaced, handler, **options)
    return registry


def count_commits(b: Bench) -> list[int]:
    commits: list[int] = []
    sqlalchemy_event.listen(b.store.engine.sync_engine, "commit", lambda _: commits.append(1))
    return commits


async def test_a_batch_handler_takes_a_list_and_one_commit(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists()
        at_work = subscriber(b, batches(handler, batch=3))
        await at_work.handle([])
        commits = count_commits(b)
        verdicts = await deliver(at_work, [placed(n) for n in range(1, 8)])
        assert handler.calls == [[1, 2, 3], [4, 5, 6], [7]]
        assert verdicts == [("ack", n) for n in range(1, 8)]
        assert len(commits) == 3
        assert await b.effects() == [f"1/{n}" for n in range(1, 8)]
        assert at_work.statistics.handled == 7


async def test_a_failed_batch_is_repeated_one_by_one(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists(2)
        messages = [placed(1), placed(2), placed(3), placed(4, "other")]
        verdicts = await deliver(subscriber(b, batches(handler, batch=10)), messages)
        assert handler.calls == [[1, 2, 3, 4], [1], [2], [4]]
        assert verdicts == [("ack", 1), ("retry", 60, 2), ("retry", 60, 3), ("ack", 4)]
        assert sorted(await b.effects()) == ["1/1", "other/4"]
        assert (await b.record(messages[1])).retry_count == 1


@pytest.mark.parametrize(("every", "expected"), [(1, 6), (2, 3), (4, 2)])
async def test_events_that_share_a_commit_are_handled_in_turn(database_url: str, every: int, expected: int) -> None:
    async with bench(database_url) as b:
        handler = Turns()
        at_work = subscriber(b, batches(handler, commit_every=every))
        await at_work.handle([])
        commits = count_commits(b)
        verdicts = await deliver(at_work, [placed(n) for n in range(1, 7)])
        assert handler.calls == [[n] for n in range(1, 7)]
        assert verdicts == [("ack", n) for n in range(1, 7)]
        assert len(commits) == expected


async def test_a_failure_among_events_that_share_a_commit_costs_the_others_nothing(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Turns(3)
        messages = [placed(1), placed(2), placed(3), placed(4)]
        verdicts = await deliver(subscriber(b, batches(handler, commit_every=10)), messages)
        assert verdicts == [("ack", 1), ("ack", 2), ("retry", 60, 3), ("retry", 60, 4)]
        assert await b.effects() == ["1/1", "1/2"]


@pytest.mark.spec("P10")
@pytest.mark.parametrize("options", [{"batch": 10}, {"commit_every": 10}])
async def test_a_duplicate_in_a_batch_is_not_handled_again(database_url: str, options: dict[str, int]) -> None:
    async with bench(database_url) as b:
        handler = Lists() if "batch" in options else Turns()
        at_work = subscriber(b, batches(handler, **options))
        first, second = placed(1), placed(2)
        await deliver(at_work, [first])
        assert await deliver(at_work, [first, second, second]) == [("ack", 1), ("ack", 2), ("ack", 2)]
        assert await b.effects() == ["1/1", "1/2"]
        assert at_work.statistics.duplicates == 2


async def test_duplicates_do_not_keep_the_others_from_sharing_a_commit(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists()
        at_work = subscriber(b, batches(handler, batch=10))
        messages = [placed(n) for n in range(1, 7)]
        await deliver(at_work, messages[:3])
        commits = count_commits(b)
        verdicts = await deliver(at_work, messages)
        assert handler.calls == [[1, 2, 3], [4, 5, 6]]
        assert sorted(verdicts) == [("ack", n) for n in range(1, 7)]
        assert len(commits) == 1
        assert (at_work.statistics.handled, at_work.statistics.duplicates) == (6, 3)


async def test_what_comes_twice_in_one_batch_is_handled_once_with_the_others(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists()
        at_work = subscriber(b, batches(handler, batch=10))
        messages = [placed(n) for n in range(1, 5)]
        await deliver(at_work, messages[:1])
        verdicts = await deliver(at_work, [*messages, *messages])
        assert handler.calls == [[1], [2, 3, 4]]
        assert sorted(verdicts) == sorted([("ack", n) for n in range(1, 5)] * 2)
        assert (at_work.statistics.handled, at_work.statistics.duplicates) == (4, 5)


async def test_what_comes_again_behind_its_successor_keeps_its_first_place(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists()
        first, second = placed(1), placed(2)
        await deliver(subscriber(b, batches(handler, batch=10)), [first, second, first])
        assert handler.calls == [[1, 2]]


async def test_an_outage_between_the_two_tries_settles_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b:
        at_work = subscriber(b, batches(Lists(), batch=10))
        messages = [placed(n) for n in range(1, 5)]
        await deliver(at_work, messages[:2])

        async def down(*_: object) -> set[object]:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "succeeded", down)
        assert [verdict[0] for verdict in await deliver(at_work, messages)] == ["retry"] * 4


async def test_a_batch_waits_behind_a_failed_predecessor(database_url: str) -> None:
    async with bench(database_url) as b:
        handler = Lists()
        await b.inbox.mark_failed(GROUP, placed(1), RuntimeError(), Retry(60.0))
        verdicts = await deliver(subscriber(b, batches(handler, batch=10)), [placed(2), placed(3), placed(1, "other")])
        assert [verdict[0] for verdict in verdicts] == ["retry", "retry", "ack"]
        assert await b.effects() == ["other/1"]


async def test_an_outage_gives_a_whole_batch_back_at_once(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        asked = []

        async def down(*_: object) -> bool:
            asked.append(1)
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "claim", down)
        messages = [placed(1, str(key)) for key in range(5)]
        verdicts = await deliver(subscriber(b, batches(Lists(), batch=10)), messages)
        assert [verdict[0] for verdict in verdicts] == ["retry"] * 5
        assert len(asked) == 1


class Follows(Lists):
    """A batch handler that writes an event of its own."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self.outbox, self.added = outbox, []

    async def __call__(self, events: list[OrderPlaced], session: AsyncSession, messages: list[Message]) -> None:
        self.added.append(self.outbox.add(session, OrderCancelled("9")).message)


@pytest.mark.spec("G5", "T2")
@pytest.mark.parametrize("field", ["tenant", "correlation_id", "user_id"])
async def test_what_a_batch_adds_inherits_what_all_of_it_agree_on(sqlite_url: str, field: str) -> None:
    said = {"tenant": "north", "correlation_id": "flow-1", "user_id": "ada"}
    async with bench(sqlite_url) as b:
        handler = Follows(Outbox(b.store, "shop"))
        at_work = subscriber(b, batches(handler, batch=10))
        await deliver(at_work, [placed(1, "a", **said), placed(1, "b", **said)])
        await deliver(at_work, [placed(2, "a", **said), placed(2, "b", **said | {field: "another"})])
        agreed, differing = handler.added
        assert {name: getattr(agreed, name) for name in said} == said
        assert agreed.causation_id is None
        own = {"tenant": "", "correlation_id": str(differing.id), "user_id": None}
        assert {name: getattr(differing, name) for name in said} == said | {field: own[field]}


@pytest.mark.spec("G5")
async def test_a_batch_of_one_is_the_cause_of_what_it_adds(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        handler, only = Follows(Outbox(b.store, "shop")), placed(1, tenant="north", correlation_id="flow-1")
        await deliver(subscriber(b, batches(handler, batch=10)), [only])
        [added] = handler.added
        assert (added.causation_id, added.correlation_id, added.tenant) == (str(only.id), "flow-1", "north")
        assert origin() is None
