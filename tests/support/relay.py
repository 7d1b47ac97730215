"""A relay that runs beside the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postroad.relay import Relay


@asynccontextmanager
async def running(relay: Relay) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await task
