"""What a person lets be tried again in one go is found by id, each page behind the last, and counted without it."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from postroad import operations
from postroad.operations import Filter
from postroad.stores.base import Store
from postroad.testing.office import Office


async def parked(office: Office, count: int) -> list[UUID]:
    ids = [added.id for number in range(count) for added in await office.post(f"p{number}")]
    async with office.store.transaction() as connection:
        for id in ids:
            park = text("UPDATE postroad_outbox SET state = 'FAILED' WHERE event_id = :id")
            await connection.execute(park, {"id": office.store.adapt(id)})
    return ids


async def test_each_page_begins_behind_the_last_and_reads_nothing_twice(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, store = await parked(office, 7), office.store
    await office.post("waiting")
    tables = office.tables[:1]
    monkeypatch.setattr("postroad.operations.pages._AT_ONCE", 3)
    kind, pages = type(office.store), list[int]()
    read = kind.read

    async def counted(self: Store, name: str, *given: object, **bound: object) -> object:
        result = await read(self, name, *given, **bound)  # type: ignore[arg-type]
        if name == "outbox_retryable_ids":
            pages.append(len(result.rows))
        return result

    monkeypatch.setattr(kind, "read", counted)
    found = await operations.retryable_ids(store, tables, Filter("FAILED"))
    assert found == sorted(ids)
    assert pages == [3, 3, 1]
    assert await operations.retryable_count(store, tables, Filter("FAILED")) == 7
    assert await operations.retryable_count(store, tables, Filter("RETRY")) == 0


async def test_all_filters_narrow_both_alike(office: Office) -> None:
    store, outboxes = office.store, office.tables
    old, other, *_ = ids = await parked(office, 4)
    now = store.clock.now()
    async with store.transaction() as connection:
        change = text("UPDATE postroad_outbox SET occurred_at = :at, last_error = :told WHERE event_id = :id")
        given = {"at": store.adapt(now - timedelta(days=9)), "told": "no queue", "id": store.adapt(old)}
        await connection.execute(change, given)
    some = (await operations.outbox_event(store, outboxes, other)).event
    day = timedelta(days=1)
    for wanted, expected in (
        (Filter("FAILED"), ids),
        (Filter("FAILED", type=some.type), ids),
        (Filter("FAILED", type="another.type"), []),
        (Filter("FAILED", key=some.key), [other]),
        (Filter("FAILED", key=some.key.partition("/")[2]), [other]),
        (Filter("FAILED", text="queue"), [old]),
        (Filter("FAILED", text=some.key.partition("/")[2]), [other]),
        (Filter("FAILED", since=now - day), ids[1:]),
        (Filter("FAILED", until=now - day), [old]),
        (Filter("RETRY"), []),
    ):
        assert list(await operations.retryable_ids(store, outboxes, wanted)) == sorted(expected), wanted
        assert await operations.retryable_count(store, outboxes, wanted) == len(expected), wanted
