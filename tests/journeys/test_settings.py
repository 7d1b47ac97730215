"""A Postroad made from settings, at work: each key where it counts."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Message, Postroad, event

SETTINGS = """
source: catalog
pubsub:
  topics:
    lamp_events: "house.lamp.events"
  publisher:
    scan_interval: "200ms"
    batch_size: 3
    num_goroutines: 3
  subscriptions:
    switches:
      subscription_id: "house.lamp.events.switches"
      max_outstanding_messages: 2
      num_goroutines: 2
      ack_deadline: "20s"
"""


@event("lamp.lit", topic="house.lamp.events", aggregate="lamp", key="lamp")
class LampLit(msgspec.Struct, frozen=True):
    lamp: str
    n: int


@pytest.mark.spec("P15")
async def test_settings_reach_relays_and_consumers(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SETTINGS, encoding="utf-8")
    places = {"database_url": database_url, "broker_url": f"embedded:{tmp_path / 'broker.db'}"}
    seen: list[tuple[str, int]] = []
    async with Postroad.from_settings(tmp_path / "config.yaml", **places) as road:

        @road.on(LampLit, group="switches")
        async def handle(lit: LampLit, message: Message, session: AsyncSession) -> None:
            await session.execute(text("INSERT INTO lit VALUES (:lamp, :n)"), {"lamp": lit.lamp, "n": lit.n})
            seen.append((lit.lamp, message.version or 0))

        @road.on(LampLit, group="watchers")
        async def watch(lit: LampLit) -> None: ...

        await road.migrate()
        runner = road.runner()
        assert [relay.options.poll for relay in runner.relays] == [0.2, 0.2, 0.2]
        assert [relay.options.batch for relay in runner.relays] == [3, 3, 3]
        options = {one.group: one.options for one in runner.subscribers}
        assert (options["switches"].concurrency, options["switches"].flow.messages) == (2, 2)
        assert (options["watchers"].concurrency, options["watchers"].flow.messages) == (8, 1_000)
        assert {one.name: one.ack_deadline for one in road.topology.subscriptions} == {
            "house.lamp.events.switches": 20.0,
            "house.lamp.events.watchers": 10.0,
        }
        async with runner.started():
            async with road.session() as session, session.begin():
                await session.execute(text("CREATE TABLE lit (lamp VARCHAR(10), n INTEGER)"))
            async with road.session() as session, session.begin():
                for n in range(10):
                    for lamp in ("red", "blue"):
                        road.add(session, LampLit(lamp, n))
            await road.drain()
        for lamp in ("red", "blue"):
            assert [version for name, version in seen if name == lamp] == list(range(1, 11))
        async with road.session() as session:
            assert (await session.execute(text("SELECT COUNT(*) FROM lit"))).scalar() == 20
