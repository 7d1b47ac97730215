"""A small shop with its dashboard served on a port of its own, and a browser that looks at it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import text
from starlette.applications import Starlette

from postroad import Backoff, PoisonError, Postroad, RelayOptions, SubscriberOptions, event
from postroad.dashboard import dashboard_app
from tests.support.components import address

T = TypeVar("T")


@event("basket.sold", topic="fair.basket.events", aggregate="basket", key="basket_id")
class BasketSold(msgspec.Struct, frozen=True):
    basket_id: str
    cents: int = 1
    buyer: dict[str, Any] | None = None


@event("basket.wrapped", topic="fair.basket.events", aggregate="basket", key="basket_id")
class BasketWrapped(msgspec.Struct, frozen=True):
    basket_id: str


class Fair:
    """The road and what people find on it; `run` does something on the loop that the dashboard is served by."""

    def __init__(self, folder: Path) -> None:
        self.road = Postroad(
            source="fair",
            database_url=f"sqlite:///{folder / 'fair.db'}",
            broker_url=f"embedded:{folder / 'broker.db'}",
            relay=RelayOptions(poll=0.05, backoff=Backoff(attempts=1)),
            subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
        )
        self.handled: list[str] = []
        self.mended = False
        self.loop = asyncio.new_event_loop()

        @self.road.on(BasketSold, group="wrapping")
        async def wrap(sold: BasketSold, session: Any) -> None:
            if sold.cents == 13 and not self.mended:
                raise PoisonError(f"basket {sold.basket_id} is unlucky")
            self.handled.append(sold.basket_id)
            self.road.add(session, BasketWrapped(sold.basket_id))

        @self.road.on(BasketWrapped, group="handing-out")
        async def hand_out(wrapped: BasketWrapped) -> None:
            return None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(30)

    async def sell(self, *baskets: str, cents: int = 1, buyer: Any = None, **options: Any) -> list[UUID]:
        async with self.road.session() as session, session.begin():
            return [self.road.add(session, BasketSold(b, cents, buyer), **options).id for b in baskets]

    async def deliver(self) -> None:
        async with self.road.running():
            await self.road.drain()

    async def park(self, ids: list[UUID], error: str = "no queue takes it") -> None:
        async with self.road.store.transaction() as connection:
            for id in ids:
                parked = (
                    "UPDATE postroad_outbox SET state = 'FAILED', attempts = 5, last_error = :e WHERE event_id = :id"
                )
                await connection.execute(text(parked), {"e": error, "id": str(id)})


@pytest.fixture
def fair(tmp_path: Path) -> Iterator[Fair]:
    fair = Fair(tmp_path)
    thread = threading.Thread(target=fair.loop.run_forever)
    thread.start()
    fair.run(fair.road.migrate())
    yield fair
    fair.run(fair.road.aclose())
    fair.loop.call_soon_threadsafe(fair.loop.stop)
    thread.join()
    fair.loop.close()


Serve = Callable[..., str]


@pytest.fixture
def serve(fair: Fair) -> Iterator[Serve]:
    """`serve(token=…)` starts the dashboard and tells its address."""
    servers: list[tuple[uvicorn.Server, Future[None]]] = []

    def start(app: Starlette | None = None, **options: Any) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        app = app or dashboard_app(fair.road, **({"interval": 0.2} | options))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
        servers.append((server, asyncio.run_coroutine_threadsafe(server._serve([listening]), fair.loop)))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for server, future in servers:
        server.should_exit = True
        future.result(10)


@pytest.fixture(scope="session")
def chromium_url() -> str:
    return address("chromium")


@pytest.fixture(scope="module")
def browser(chromium_url: str) -> Iterator[Browser]:
    # For a module and not longer: while it runs, this thread counts as one with a running event loop.
    with sync_playwright() as playwright:
        yield playwright.chromium.connect_over_cdp(chromium_url)


@pytest.fixture
def page(browser: Browser, chromium_url: str) -> Iterator[Page]:
    """Every message of the browser's console is a mistake of ours: a script that failed, or one that the policy stopped."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(10_000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    yield page
    context.close()
    assert [one for one in said if "status of 4" not in one] == []
