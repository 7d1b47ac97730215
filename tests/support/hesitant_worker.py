"""A capability of genesis that says what it has been asked for, and then never answers. To be killed."""

import asyncio
import sys
import threading

from examples.genesis import workers
from examples.genesis.story import Draft, Requested
from examples.genesis.studio import Studio
from postroad.subscriber import SubscriberOptions


def hesitate(request: Requested) -> Draft:
    print(f"asked for {request.stage}", flush=True)
    threading.Event().wait()
    raise AssertionError("nobody sets it")


async def main(database_url: str, broker_url: str, group: str, deadline: str) -> None:
    workers.imagine = hesitate  # type: ignore[attr-defined]
    studio = Studio(database_url, broker_url, subscriber=SubscriberOptions(ack_deadline=float(deadline)))
    async with studio.road.running(relay=False, groups=[group]):
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
