"""What asyncmy makes of a cancellation must not end as an error of the database."""

import asyncio

import pytest
from sqlalchemy.exc import InterfaceError

from postroad.stores import open_store


async def test_a_cancelled_statement_is_a_cancellation_and_no_trouble_with_the_database(mariadb_url: str) -> None:
    store = open_store(mariadb_url)
    said = InterfaceError("SELECT 1", None, Exception(0, "Cancelled during execution"))
    with pytest.raises(asyncio.CancelledError), store.translating():
        raise said
    await store.aclose()
