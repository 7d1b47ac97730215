"""What a page of the dashboard takes its server, at any depth of a long list, and what a scrape takes beside it."""

import time
from uuid import UUID

import httpx

from bench.common import Figure, Scale, Target, fresh_road
from bench.rows import fill, settle_down
from postroad import Postroad
from postroad.dashboard import dashboard_app
from postroad.dashboard.desk import cursor
from postroad.telemetry.telemetry import Telemetry

_ONE_AFTER_THE_OTHER = """
UPDATE postroad_outbox
   SET published_at = now() - make_interval(secs => ('x' || right(event_id::text, 8))::bit(32)::int)"""
_PLACE = """
SELECT published_at, event_id FROM postroad_outbox ORDER BY published_at DESC, event_id DESC OFFSET {} LIMIT 1"""
_PAGE = Target(300, at_most=True, unit="ms")


async def measure(scale: Scale, server: str) -> list[Figure]:
    rows = scale.of(500, 200_000, 2_000_000)
    async with fresh_road(server) as road:
        few = await _scrapes(road, scale.rounds)
        await fill(road, rows, keys=scale.of(10, 10_000), state="SENT")
        async with road.store.transaction() as connection:
            await connection.exec_driver_sql(_ONE_AFTER_THE_OTHER)
        await settle_down(road)
        pages = [
            Figure(f"outbox page, {told}", await _pages(road, scale.rounds, after), [], "ms", _PAGE, f"{rows:,} events")
            for told, after in (
                ("first", ""),
                ("in the middle", await _place(road, rows // 2)),
                ("last", await _place(road, rows - 51)),
            )
        ]
        scrapes = Figure("scrape", await _scrapes(road, scale.rounds), few, "ms", None, f"{rows:,} events beside none")
    return [*pages, scrapes]


async def _place(road: Postroad, depth: int) -> str:
    async with road.store.reading() as connection:
        at, id = (await connection.exec_driver_sql(_PLACE.format(depth))).one()
    return cursor(at, UUID(str(id)))


async def _pages(road: Postroad, rounds: int, after: str) -> list[float]:
    app = dashboard_app(road)
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 4000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as visitor:
        return [await _page(visitor, after) for _ in range(rounds)]


async def _page(visitor: httpx.AsyncClient, after: str) -> float:
    begun = time.perf_counter()
    answer = await visitor.get("/outbox", params={"state": "SENT", "after": after})
    took = 1000 * (time.perf_counter() - begun)
    assert answer.text.count("data-href") == 50, answer.text
    return took


async def _scrapes(road: Postroad, rounds: int) -> list[float]:
    telemetry, found = Telemetry(road), []
    runner = road.runner()
    async with runner.started():
        for _ in range(rounds):
            begun = time.perf_counter()
            telemetry._gauges = None  # not what was read a moment ago
            assert b"outbox_pending_count" in await telemetry.metrics()
            found.append(1000 * (time.perf_counter() - begun))
    return found
