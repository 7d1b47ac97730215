"""Whether database and broker answer, asked before anything is started."""

import asyncio
from typing import Final

from postroad.brokers.base import Broker, Topology
from postroad.errors import BrokerUnavailable, StoreUnavailable
from postroad.stores import Store

PATIENCE: Final = 2.5
"""Seconds; with the time a process takes to start, a person knows within five."""


async def require_database(store: Store) -> None:
    try:
        async with asyncio.timeout(PATIENCE), store.reading() as connection:
            await connection.exec_driver_sql("SELECT 1")
    except TimeoutError:
        raise StoreUnavailable(
            f"The database at {store.host} did not answer within {PATIENCE:g} s. "
            "Is it running, and reachable from here?"
        ) from None


async def require_broker(broker: Broker, topology: Topology) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await broker.plan(topology)
    except TimeoutError:
        raise BrokerUnavailable(
            f"The broker at {broker.address} did not answer within {PATIENCE:g} s. "
            "Is it running, and reachable from here?"
        ) from None
