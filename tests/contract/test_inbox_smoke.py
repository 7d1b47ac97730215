import uuid
from datetime import UTC, datetime
import pytest
from postroad.inbox import *
from postroad.message import Message
from postroad.stores import open_store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX

def msg(v=1, key="1", **kw):
    return Message(id=uuid.uuid4(), type="order.placed", topic="shop.order.events", aggregate_type="order", aggregate_id=key, version=v, occurred_at=datetime.now(UTC), payload=b"{}", **kw)

async def test_smoke(database_url):
    store = open_store(database_url)
    await migrate(store, [DEFAULT_OUTBOX])
    inbox = Inbox(store)
    m, n = msg(), msg(2, deliver_at=datetime.now(UTC))
    for want in (True, False):
        async with store.transaction() as c:
            assert await inbox.claim(c, "g", [m, n]) is want
    async with store.transaction() as c:
        assert await inbox.claim(c, "h", [m])
    print(await inbox.find("g", m.id), await inbox.find("g", n.id))
    k = msg(5, "k")
    async def boom(message, session):
        raise ValueError("no\0")
    with pytest.raises(ValueError):
        await inbox.consume("g", k, boom, ConsumeOptions(base_backoff=60, keep_message=True))
    print(await inbox.find("g", k.id))
    async with store.transaction() as c:
        assert not await inbox.claim(c, "g", [msg(6, "k")])
    assert (await inbox.consume("g", k, boom)).in_progress
    a = await inbox.try_acquire("g", msg(6, "k"), 30)
    assert a.state is AcquireState.IN_PROGRESS and 50 < a.wait < 61
    assert await inbox.retry("g", k.id)
    assert [r.event_id for r in await inbox.due("g")] == [k.id]
    async def fine(message, session):
        pass
    assert not (await inbox.consume("g", k, fine)).in_progress
    print(await inbox.list(), await inbox.counts())
    await inbox.declare("g", ["a", "b"]); await inbox.declare("g", ["b"])
    assert await inbox.known_types("g") == {"a", "b"}
    inbox.horizon = -1
    assert await inbox.prune(0, 1) == 1
    assert await inbox.prune(0) == 3
    await inbox.aclose()
    await store.aclose()
