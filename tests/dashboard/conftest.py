"""The dashboard of a small fair, served on a port of its own, and a browser that looks at it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.applications import Starlette

from postroad.dashboard import dashboard_app
from tests.support.components import address
from tests.support.fair import Fair

PATIENCE = 60_000.0
"""Milliseconds: how long a loaded machine may take to show what it will show."""
expect.set_options(timeout=PATIENCE)


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
    """What the browser complains of is a mistake of ours: a script that failed, or one that the policy stopped."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    yield page
    context.close()
    assert [one for one in said if "status of 4" not in one] == []
