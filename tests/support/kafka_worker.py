"""A process that takes what it can get of a subscription, says so, and settles none of it: to be killed.

python -m tests.support.kafka_worker URL SUBSCRIPTION
"""

import asyncio
import sys

from postroad.brokers.base import Flow
from tests.support.kafka import connected


async def main(url: str, subscription: str) -> None:
    receiver = await connected(url).subscribe(subscription, Flow())
    while True:
        for delivery in await receiver.receive():
            print(delivery.data.decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
