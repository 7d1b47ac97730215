"""What a process answers when it is asked how it is: /metrics, /livez, /readyz."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from postroad.errors import PostroadError
from postroad.redact import one_line
from postroad.stores import migrations
from postroad.telemetry.exposition import CONTENT_TYPE, exposition
from postroad.telemetry.http import Answer, serve
from postroad.telemetry.meter import Meter, RecentAverage
from postroad.telemetry.reading import read_gauges, stuck

if TYPE_CHECKING:
    from postroad.app import Postroad

log = logging.getLogger("postroad")

_FRESH: Final = 5.0
"""Seconds for which gauges are served again: many who ask cost the database no more than one."""
_PATIENCE: Final = 2.5
PATHS: Final = ("/metrics", "/livez", "/readyz")


class Telemetry:
    """Make it before `road.running()` or `road.runner()`: from then on they count. Each process has its own.

    `telemetry` itself is an ASGI application, to be mounted in yours; `serve` is a small server for the rest.
    """

    def __init__(self, road: "Postroad") -> None:
        self._road = road
        self.meter: Meter = road.meter or Meter()
        road.meter = self.meter
        self._gauges: tuple[float, Meter] | None = None
        self._reading = asyncio.Lock()
        self._told: set[str] = set()
        self._delay = RecentAverage("outbox_publish_latency")

    async def answer(self, path: str) -> Answer:
        match path:
            case "/metrics":
                return Answer(200, await self.metrics(), CONTENT_TYPE)
            case "/livez":
                return _health(self.faults())
            case "/readyz":
                return _health(await self.obstacles())
        return Answer(404, f"Here are only {', '.join(PATHS)}.\n".encode())

    def serve(self, host: str, port: int) -> AbstractAsyncContextManager[int]:
        """Answers while the block lasts; the port, which was free if 0 was given."""
        return serve(self.answer, host, port)

    async def metrics(self) -> bytes:
        """In Prometheus' text format. Raises MissingExtra without its library."""
        return exposition([self.meter, await self._current()])

    def faults(self) -> list[str]:
        """Why this process should be started anew. That it answers at all shows that its event loop is not blocked."""
        return stuck(list(self._road.runners), self._road.clock.monotonic())

    async def obstacles(self) -> list[str]:
        """Why this process cannot do its work at the moment, or shall be given none."""
        runners = self._road.runners
        states = ["starting"] if not runners else ["stopping"] if any(runner.stopping for runner in runners) else []
        states += ["drained"] if any(runner.drained for runner in runners) else []
        return states + [trouble for trouble in (await _tried(self._database), await _tried(self._broker)) if trouble]

    async def _database(self) -> None:
        await migrations.require_current(self._road.store, self._road.outboxes)

    async def _broker(self) -> None:
        await self._road.broker.plan(self._road.topology)

    async def _current(self) -> Meter:
        async with self._reading:
            now = self._road.clock.monotonic()
            if self._gauges is None or now - self._gauges[0] >= _FRESH:
                gauges, troubles = await read_gauges(self._road)
                gauges.set("avg_publish_delay", 1000 * self._delay.read(self.meter, now))
                self._tell(troubles)
                self._gauges = now, gauges
            return self._gauges[1]

    def _tell(self, troubles: Sequence[str]) -> None:
        # Once, and not at every scrape while it lasts.
        for trouble in set(troubles) - self._told:
            log.warning("some metrics cannot be read: %s", trouble)
        self._told = set(troubles)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"Postroad's telemetry answers HTTP, not {scope['type']}.")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        known = await self.answer(path) if scope["method"] in ("GET", "HEAD") else Answer(405, b"Only GET.\n")
        headers = [(b"content-type", known.content_type.encode()), (b"content-length", b"%d" % len(known.text))]
        await send({"type": "http.response.start", "status": known.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else known.text})


async def _tried(ask: Callable[[], Awaitable[None]]) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            await ask()
    except TimeoutError:
        return f"{ask.__name__.strip('_')} did not answer within {_PATIENCE:g} s"
    except PostroadError as error:
        return one_line(str(error))
    return ""


def _health(troubles: list[str]) -> Answer:
    return Answer(503 if troubles else 200, ("\n".join(troubles or ["ok"]) + "\n").encode())
