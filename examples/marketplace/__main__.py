"""The whole shop in one process, with its page.

Without more it uses a SQLite file and the embedded broker; --database-url and --broker-url, or DATABASE_URL and
BROKER_URL, take others. A database that is missing on a MariaDB server is created.
"""

import argparse
import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import uvicorn
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from examples.marketplace import catalog, wording
from examples.marketplace.api import create_app
from examples.marketplace.settings import Settings, from_environment
from examples.marketplace.shop import Shop
from postroad import logs
from postroad.errors import PostroadError

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
    logs.configure("INFO")
    wording.install()
    logging.getLogger("uvicorn.access").setLevel("WARNING")
    try:
        shop = Shop(settings)
        asyncio.run(_open(shop))
    except PostroadError as error:
        raise SystemExit(f"The shop cannot open: {error}") from None
    print(f"The shop is open: http://{arguments.host}:{arguments.port}/   API: /docs   (Ctrl-C closes it)", flush=True)
    # The page holds a stream open for ever: closing must not wait for it.
    app = create_app(shop, run=not arguments.api_only)
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
    parser.add_argument("--api-only", action="store_true", help="relay and consumers run elsewhere")
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


async def _open(shop: Shop) -> None:
    """Tables and queues; and on the first day something to buy."""
    if shop.road.store.dialect == "mysql":
        await _create_database(shop.road.store.url)
    await shop.prepare()
    async with shop.road.store.reading() as connection:
        empty = not await catalog.all_products(connection, 1)
    if empty:
        for title, price in FIRST_PRODUCTS:
            offer = partial(catalog.offer, seller_id=SELLER, title=title, price=Decimal(price), now=shop.now())
            await shop.transact(offer)
    await shop.aclose()


async def _create_database(url: URL) -> None:
    server = create_async_engine(url.set(drivername="mysql+asyncmy")._replace(database=None))
    with suppress(OSError, SQLAlchemyError):  # what is wrong with the server is told by whoever needs it next
        async with server.begin() as connection:
            name = connection.dialect.identifier_preparer.quote(str(url.database))
            await connection.exec_driver_sql(f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4")
    await server.dispose()


if __name__ == "__main__":
    main()
