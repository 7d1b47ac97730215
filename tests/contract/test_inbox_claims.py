"""The happy path: record and effect in one transaction, on every store."""

import asyncio
from typing import cast

import msgspec
import pytest

from postroad.errors import StoreError
from postroad.inbox import ConsumeOptions, Status
from postroad.message import Message
from postroad.stores import open_store
from tests.support.consuming import GROUP, Bench, bench, delayed, effect, placed

LATER = ConsumeOptions(base_backoff=60.0)


async def claimed(b: Bench, *messages: Message, group: str = GROUP) -> bool:
    async with b.store.engine.connect() as connection:
        won = await b.inbox.claim(connection, group, messages)
        await (connection.commit() if won else connection.rollback())
    return won


async def fail(b: Bench, message: Message) -> None:
    async def handler(message: Message, session: object) -> None:
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError):
        await b.inbox.consume(GROUP, message, handler, LATER)


@pytest.mark.spec("P10", "T1")
async def test_a_message_is_claimed_once(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed(7, tenant="acme")
        assert await claimed(b, message)
        assert not await claimed(b, message)
        record = await b.record(message)
        assert record.status is Status.SUCCEEDED
        assert (record.group, record.event_id, record.tenant, record.event_type, record.version) == (
            GROUP, message.id, "acme", "order.placed", 7,
        )  # fmt: skip
        assert record.ordering_key == "order/1"
        assert record.processed_at is not None
        assert record.retry_count == 0


@pytest.mark.spec("T7")
async def test_groups_claim_independently(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        assert await claimed(b, message)
        assert await claimed(b, message, group="billing")


async def test_several_are_claimed_together_or_not_at_all(database_url: str) -> None:
    async with bench(database_url) as b:
        first, second, third = placed(1), placed(2), placed(3)
        assert await claimed(b, second)
        assert not await claimed(b, first, second, third)
        assert await b.inbox.find(GROUP, first.id) is None
        assert await claimed(b, first, third)


@pytest.mark.spec("P6")
async def test_a_claim_waits_behind_a_failed_predecessor_of_its_key_only(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, placed(2))
        assert not await claimed(b, placed(3))
        assert not await claimed(b, placed(1, "other"), placed(3))
        assert await claimed(b, placed(1))
        assert await claimed(b, placed(3, "other"))
        assert await claimed(b, placed(3), group="billing")


async def test_a_delayed_message_stands_outside_its_keys_order(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, placed(1))
        late = delayed(2)
        assert await claimed(b, late)
        assert (await b.record(late)).ordering_key is None


async def test_a_failed_delayed_message_holds_nobody_up(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, delayed(1))
        assert await claimed(b, placed(2))


async def test_a_key_that_differs_by_case_or_accent_is_another_key(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, placed(1, "a"))
        assert await claimed(b, placed(2, "A"))
        assert await claimed(b, placed(2, "ä"))


@pytest.mark.spec("T6")
async def test_of_two_claims_at_once_one_wins_when_the_other_commits(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        other = open_store(database_url)
        async with b.store.engine.begin() as connection:
            assert await b.inbox.claim(connection, GROUP, [message])
            rival = asyncio.create_task(_claim_elsewhere(b, other, message))
            await asyncio.sleep(0.05)
            assert not rival.done()
        assert await rival is False
        await other.aclose()


@pytest.mark.spec("T6")
async def test_of_two_claims_at_once_the_second_wins_when_the_first_rolls_back(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        other = open_store(database_url)
        async with b.store.engine.connect() as connection:
            assert await b.inbox.claim(connection, GROUP, [message])
            rival = asyncio.create_task(_claim_elsewhere(b, other, message))
            await asyncio.sleep(0.05)
            await connection.rollback()
        assert await rival is True
        await other.aclose()


async def _claim_elsewhere(b: Bench, other: object, message: Message) -> bool:
    async with other.engine.begin() as connection:  # type: ignore[attr-defined]
        return await b.inbox.claim(connection, GROUP, [message])


@pytest.mark.spec("F7")
async def test_claim_and_effect_vanish_together(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        with pytest.raises(RuntimeError):  # noqa: PT012
            async with b.store.session() as session, session.begin():
                assert await b.inbox.claim(await session.connection(), GROUP, [message])
                await effect(session, "lost")
                raise RuntimeError("crash")
        assert await b.inbox.find(GROUP, message.id) is None
        assert await b.effects() == []


async def test_claims_of_the_same_messages_in_different_order_do_not_deadlock(database_url: str) -> None:
    async with bench(database_url) as b:
        messages = [placed(n) for n in range(1, 41)]
        for _ in range(5):
            wins = await asyncio.gather(
                *(claimed(b, *order) for order in (messages, messages[::-1], messages, messages[::-1]))
            )
            assert sum(wins) <= 1
        assert (await b.record(messages[0])).status is Status.SUCCEEDED


async def test_a_row_that_is_refused_for_another_reason_is_not_taken_for_a_duplicate(database_url: str) -> None:
    async with bench(database_url) as b, b.store.engine.connect() as connection:
        with pytest.raises(StoreError):
            await b.inbox.claim(connection, cast(str, None), [placed()])


async def test_only_what_has_succeeded_in_the_group_under_its_type_is_known_as_done(database_url: str) -> None:
    async with bench(database_url) as b:
        done, failed, elsewhere, other_type, new = (placed(n, str(n)) for n in range(1, 6))
        assert await claimed(b, done, other_type)
        assert await claimed(b, elsewhere, group="others")
        await fail(b, failed)
        renamed = msgspec.structs.replace(other_type, type="order.renamed")
        asked = [done, failed, elsewhere, renamed, new]
        assert await b.inbox.succeeded(GROUP, asked) == {(done.id, done.type)}
        assert await b.inbox.succeeded(GROUP, []) == set()
