"""What the consumption template can be given to run, and under which names."""

from functools import partial

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from postroad.errors import ConfigurationError, InvalidName
from postroad.handlers import Bus
from postroad.inbox import ConsumeResult
from postroad.message import Message
from tests.support.consuming import GROUP, OrderPlaced, bench, effect, effects, placed


async def write(message: Message, session: AsyncSession) -> None:
    await effect(session, f"order {message.version}")


async def test_a_plain_handler_gets_a_plain_session(database_url: str) -> None:
    async with bench(database_url) as b:

        def plainly(message: Message, session: Session) -> None:
            session.execute(insert(effects).values(what=f"{message.aggregate_id} plainly"))

        message = placed()
        assert await b.inbox.consume(GROUP, message, plainly) == ConsumeResult()
        assert await b.inbox.consume(GROUP, message, plainly) == ConsumeResult(replayed=True)
        assert await b.effects() == ["1 plainly"]


async def test_what_is_no_function_handles_nothing(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        with pytest.raises(ConfigurationError, match="'nothing' cannot handle a message: it is not a function"):
            await b.inbox.consume(GROUP, placed(), "nothing")  # type: ignore[arg-type]


async def test_every_kind_of_async_handler_gets_an_async_session(sqlite_url: str) -> None:
    async def named(what: str, message: Message, session: AsyncSession) -> None:
        await effect(session, what)

    class Writer:
        async def __call__(self, message: Message, session: AsyncSession) -> None:
            await effect(session, "object")

        async def method(self, message: Message, session: AsyncSession) -> None:
            await effect(session, "method")

    async with bench(sqlite_url) as b:
        for handler in (partial(named, "partial"), Writer(), Writer().method):
            await b.inbox.consume(GROUP, placed(order=str(handler)[:30]), handler)
        assert await b.effects() == ["partial", "object", "method"]


async def test_a_plain_handler_that_only_makes_a_coroutine_is_refused_with_the_cure(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        with pytest.raises(ConfigurationError, match=r"plain function that returns something to be awaited\. Make it"):
            await b.inbox.consume(GROUP, placed(), lambda message, session: write(message, session))
        assert await b.effects() == []


@pytest.mark.parametrize("group", ["", "two words", "receipts/", "-", "a" * 65])
async def test_a_group_with_an_odd_name_is_refused_before_anything_is_recorded(sqlite_url: str, group: str) -> None:
    async with bench(sqlite_url) as b:
        with pytest.raises(InvalidName):
            await b.inbox.consume(group, placed(), write)
        with pytest.raises(InvalidName):
            Bus(b.inbox).register(group, OrderPlaced, write)
        assert not await b.inbox.list()
