"""`python -m examples.marketplace`: the whole shop in one process, with its page.

Without more it uses a SQLite file and the embedded broker; `--database-url` and `--broker-url`, or DATABASE_URL and
BROKER_URL, take others.
"""

import argparse
import asyncio
import logging
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import uvicorn

from examples.marketplace import catalog
from examples.marketplace.api import create_app
from examples.marketplace.settings import Settings, from_environment
from examples.marketplace.shop import Shop
from examples.marketplace.wording import Wording
from postroad import logs

FIRST_PRODUCTS = (
    ("Bicycle, hardly used", "88.50"),
    ("Espresso machine", "120.00"),
    ("Film camera, 1974", "64.90"),
    ("Desk lamp", "15.00"),
    ("Box of science fiction", "9.99"),
    ("Winter coat", "42.00"),
)
SELLER = 10_002


def main() -> None:
    arguments = _arguments()
    settings = from_environment()
    if arguments.payment_seconds is not None:
        settings = replace(settings, pending_minutes=arguments.payment_seconds / 60)
    if arguments.sweep_seconds is not None:
        settings = replace(settings, sweep_interval=arguments.sweep_seconds)
    settings = _with_addresses(settings, arguments)
    logs.configure("INFO").addFilter(Wording())
    logging.getLogger("uvicorn.access").setLevel("WARNING")
    shop = Shop(settings)
    asyncio.run(_stock(shop))
    print(f"The shop is open: http://{arguments.host}:{arguments.port}/   API: /docs   (Ctrl-C closes it)", flush=True)
    # The page holds a stream open for ever: closing must not wait for it.
    app = create_app(shop)
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_config=None, timeout_graceful_shutdown=3)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.marketplace", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--database-url")
    parser.add_argument("--broker-url")
    parser.add_argument("--data", type=Path, default=Path("build/marketplace"), help="where the two files are kept")
    parser.add_argument("--payment-seconds", type=float, help="how long an order may stay unpaid (default: 15 minutes)")
    parser.add_argument("--sweep-seconds", type=float, help="how often the sweep job looks (default: every 60)")
    return parser.parse_args()


def _with_addresses(settings: Settings, arguments: argparse.Namespace) -> Settings:
    database = arguments.database_url or os.environ.get("DATABASE_URL")
    broker = arguments.broker_url or os.environ.get("BROKER_URL")
    if database is None or broker is None:
        arguments.data.mkdir(parents=True, exist_ok=True)
    return replace(
        settings,
        database_url=database or f"sqlite:///{arguments.data / 'shop.db'}",
        broker_url=broker or f"embedded:{arguments.data / 'broker.db'}",
    )


async def _stock(shop: Shop) -> None:
    """Something to buy on the first day."""
    await shop.prepare()
    async with shop.road.store.reading() as connection:
        empty = not await catalog.all_products(connection, 1)
    if empty:
        for title, price in FIRST_PRODUCTS:
            await shop.transact(lambda s, t=title, p=price: catalog.offer(s, SELLER, t, Decimal(p), shop.now()))
    await shop.aclose()


if __name__ == "__main__":
    main()
