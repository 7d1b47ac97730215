"""A list is one parameter; on PostgreSQL it is written as text, which must come back as it was."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from postroad.clock import SystemClock
from postroad.stores import open_store
from postroad.stores.postgresql.driver import _element

ODD = [
    "",
    " ",
    "a b",
    'say "hi"',
    "back\\slash",
    '\\"',
    "{x,y}",
    "NULL",
    "null",
    ",",
    "it's",
    "ü☃",
    "\n\t",
    "%s",
    ":x",
    None,
]


async def test_texts_come_back_as_they_were(postgresql_url: str) -> None:
    store = open_store(postgresql_url, clock=SystemClock())
    query = text("SELECT x FROM unnest(CAST(:list AS text[])) WITH ORDINALITY AS t(x, n) ORDER BY n")
    try:
        for values in (ODD, []):
            async with store.reading() as connection:
                rows = (await connection.execute(query, {"list": store.list_in(values)})).fetchall()
            assert [row.x for row in rows] == values
    finally:
        await store.aclose()


async def test_numbers_and_ids_come_back_as_they_were(postgresql_url: str) -> None:
    store = open_store(postgresql_url, clock=SystemClock())
    numbers, ids = [0, -1, 2**63 - 1], [UUID(int=n) for n in range(3)]
    query = text("SELECT x, id FROM unnest(CAST(:numbers AS bigint[]), CAST(:ids AS uuid[])) AS t(x, id) ORDER BY id")
    try:
        async with store.reading() as connection:
            found = await connection.execute(query, {"numbers": store.list_in(numbers), "ids": store.list_in(ids)})
            assert [tuple(row) for row in found] == list(zip(numbers, ids, strict=True))
    finally:
        await store.aclose()


@given(st.text())
def test_an_element_never_leaves_its_quotation_marks(value: str) -> None:
    inside = _element(value)[1:-1]
    assert '"' not in inside.replace("\\\\", "").replace('\\"', "")
