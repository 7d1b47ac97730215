"""Whether database and broker answer, asked before anything is started."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from postroad.app import Postroad
from postroad.brokers.base import Broker, Topology
from postroad.errors import BrokerError, BrokerUnavailable, StoreError, StoreUnavailable
from postroad.operations.doctor.consuming import deserted
from postroad.operations.doctor.wire import unread_topics
from postroad.stores import Store

log = logging.getLogger("postroad")

PATIENCE: Final = 2.5
"""Seconds; with the time a process takes to start, a person knows within five."""


async def require_database(store: Store) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            # Not through the pool: where a file cannot be opened, aiosqlite's thread would speak up after the end.
            await store.read("clock_read")
    except TimeoutError:
        raise StoreUnavailable(
            f"The database at {store.host} did not answer within {PATIENCE:g} s. "
            "Is it running, and reachable from here?"
        ) from None


async def tell_unread_topics(road: Postroad) -> None:
    """Not every broker refuses what nobody reads. One that cannot tell now keeps nobody from starting."""
    try:
        async with asyncio.timeout(PATIENCE):
            topics = await unread_topics(road)
    except (BrokerError, TimeoutError):
        return
    if topics:
        log.warning(
            "nobody subscribes to %s: what is sent there reaches no one. "
            "Start the service that reads it once, so that its subscription is there",
            ", ".join(topics),
        )


async def deserted_groups(road: Postroad) -> Sequence[str]:
    """A sentence about each; none where that cannot be told now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await deserted(road)
    except (BrokerError, StoreError, TimeoutError):
        return ()


async def tell_deserted_groups(road: Postroad) -> None:
    for sentence in await deserted_groups(road):
        log.warning("%s Bring its handlers back, or start the program that has them", sentence)


async def require_broker(broker: Broker, topology: Topology) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await broker.plan(topology)
    except TimeoutError:
        raise BrokerUnavailable(
            f"The broker at {broker.address} did not answer within {PATIENCE:g} s. "
            "Is it running, and reachable from here?"
        ) from None
