"""Takes the pictures of the dashboard's screens for the guide, in a real browser, of a small fair with some trouble.

usage: make pictures     Chromium is that of scripts/services
"""

import asyncio
import random
import socket
import sys
import tempfile
import threading
from pathlib import Path
from uuid import UUID

import uvicorn
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from postroad import consistency, operations  # noqa: E402
from postroad.dashboard import dashboard_app  # noqa: E402
from postroad.operations import doctor, results  # noqa: E402
from tests.support.components import address  # noqa: E402
from tests.support.fair import Fair  # noqa: E402

PICTURES = ROOT / "docs/images/dashboard"
TOKEN = "a-token-for-the-picture"


async def trouble(fair: Fair) -> UUID:
    """Something to see on every screen; the id of a parked event."""
    road = fair.road
    await fair.open_stalls("north", "south", "unlucky")
    await fair.sell(*(f"b-{number}" for number in range(40)), buyer={"name": "Ada", "town": "Zürich"})
    for basket in ("b-100", "b-101", "b-102"):
        await fair.sell(basket, correlation_id="visit-7")
    await fair.sell("b-41", "b-42", "b-43", cents=13)
    await fair.deliver()
    for _ in range(4):
        await fair.sell("b-100")
    await fair.sell("b-44", "b-45", delay=5400)
    parked = await fair.sell("b-50", "b-51", "b-52")
    await fair.park(parked[:2], "no queue takes fair.basket.events")
    await fair.park(parked[2:], "11,034,112 bytes; the broker takes 10,485,760")
    await operations.pause_group(road.store, road.groups, "handing-out", actor="ada", reason="no more paper bags")
    skipped, *_ = await fair.sell("b-60")
    await fair.park([skipped])
    await operations.skip_event(road.store, road.outboxes, skipped, actor="ada", reason="a test order")
    async with road.store.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM postroad_outbox WHERE event_type = 'fair.stall.opened'")
    await results.keep(road.store, results.CHECK, await consistency.check(road, grace=0), actor="cron")
    await results.keep(road.store, results.VERIFY, await consistency.verify(road, grace=0), actor="cron")
    await results.keep(road.store, results.DOCTOR, await doctor.examine(road), actor="ada")
    return parked[0]


def screens(fair: Fair, parked: UUID) -> dict[str, str]:
    """The path of each picture."""
    (dead, *_) = fair.run(operations.dead_page(fair.road.broker, ["fair.basket.events"]))
    (command, *_) = fair.run(operations.command_page(fair.road.store, status="FAILED"))
    return {
        "overview": "/", "outbox": "/outbox", "event": f"/outbox/{parked}", "edit": f"/outbox/{parked}/edit",
        "retry": "/outbox/retry?state=FAILED", "failures": "/failures", "dead": "/dead",
        "dead-letter": f"/dead/{dead.topic}/{dead.id}", "groups": "/groups", "group": "/groups/wrapping?failed=1",
        "record": f"/groups/{dead.group}/{dead.event_id}",
        "workers": "/workers", "scheduled": "/scheduled", "commands": "/commands", "command": f"/commands/{command.id}",
        "projections": "/projections", "aggregate": "/aggregates/basket/b-100",
        "topology": "/topology", "consistency": "/consistency", "doctor": "/doctor", "audit": "/audit",
    }  # fmt: skip


def serve(fair: Fair, **options: str) -> str:
    listening = socket.create_server(("127.0.0.1", 0))
    app = dashboard_app(fair.road, interval=0.2, **options)  # type: ignore[arg-type]
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    asyncio.run_coroutine_threadsafe(server._serve([listening]), fair.loop)
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def take(page: Page, url: str, name: str, scheme: str = "light") -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_load_state()
    if name == "overview":
        page.locator("[data-chart] canvas").nth(3).wait_for()
        page.wait_for_timeout(8_000)  # for the charts to have something to show
    page.screenshot(path=PICTURES / f"{name}-{scheme}.png")
    print(f"{name}-{scheme}.png")


async def at_work(fair: Fair, until: threading.Event) -> None:
    """Relay and workers, and customers who come now and then."""
    chance = random.Random(7)
    async with fair.road.running():
        while not until.is_set():
            await asyncio.sleep(chance.random() / 2)
            await fair.sell(*(f"c-{chance.randrange(1_000)}" for _ in range(chance.randrange(6))))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        fair, done = Fair(Path(folder)), threading.Event()
        threading.Thread(target=fair.loop.run_forever, daemon=True).start()
        fair.run(fair.road.migrate())
        parked = fair.run(trouble(fair))
        working = asyncio.run_coroutine_threadsafe(at_work(fair, done), fair.loop)
        base, guarded = serve(fair), serve(fair, token=TOKEN)
        browser = playwright.chromium.connect_over_cdp(address("chromium"))
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        for name, path in screens(fair, parked).items():
            take(page, f"{base}{path}", name)
        take(page, f"{base}/", "overview", "dark")
        take(page, f"{base}/chain/visit-7", "chain", "dark")
        take(page, f"{guarded}/login", "login")
        page.set_viewport_size({"width": 375, "height": 720})
        take(page, f"{base}/outbox", "phone")
        page.context.close()
        done.set()
        working.result(30)


if __name__ == "__main__":
    main()
