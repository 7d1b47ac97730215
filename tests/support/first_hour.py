"""The newcomer's service: a file, commands, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "import sys; sys.argv[0] = 'postroad'; from postroad.cli import main; main()")

SERVICE = """
import asyncio, os, sqlite3, msgspec
from postroad import Postroad, event
from sqlalchemy import text

road = Postroad(source="shop")

@event("order.placed", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    cents: int

@road.on(OrderPlaced, group="receipts")
async def write_receipt(event: OrderPlaced, session):
    await session.execute(text("INSERT INTO receipts (order_id) VALUES (:id)"), {"id": event.order_id})
    open("called", "a").write(event.order_id + "\\n")
    if event.order_id == "fails" or event.order_id == "worsens" and open("called").read().count("worsens") == 1:
        raise RuntimeError("the printer is on fire")
    if event.order_id in ("hangs", "worsens") and not os.path.exists("released"):
        await asyncio.sleep(600)

async def setup():
    await road.migrate()
    async with road.session() as session, session.begin():
        await session.execute(text("CREATE TABLE receipts (order_id VARCHAR(64))"))

async def place(*ids):
    async with road.session() as session, session.begin():
        for id in ids:
            road.add(session, OrderPlaced(order_id=id, cents=1))

async def lease():
    locked = text("SELECT locked_until FROM postroad_inbox WHERE status = 0")
    async with road.session() as session:
        until = (await session.execute(locked)).scalar_one()
    print((road.store.time_out(until) - road.store.clock.now()).total_seconds())

async def deadlines():
    with sqlite3.connect(road.broker.address.partition(":")[2]) as file:
        held = "SELECT DISTINCT s.ack_deadline FROM receiver r JOIN subscription s ON s.id = r.subscription"
        print(*(deadline for (deadline,) in file.execute(held)))

async def receipts():
    async with road.session() as session:
        print(*(await session.execute(text("SELECT order_id FROM receipts ORDER BY order_id"))).scalars())
"""


class Newcomer:
    """Somebody at a terminal in a folder with `shop.py`."""

    def __init__(self, folder: Path, database_url: str | None) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SERVICE)
        hidden = ("DATABASE_URL", "BROKER_URL", "POSTROAD_APP")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), self.environment.get("PYTHONPATH", "")])
        if database_url:
            self.environment["DATABASE_URL"] = database_url

    def does(self, code: str) -> str:
        """`shop.<code>` awaited in a process of its own."""
        program = (
            "import asyncio, shop\n"
            f"async def main():\n    await shop.{code}\n    await shop.road.aclose()\n"
            "asyncio.run(main())"
        )
        ran = self.python("-c", program)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(sys.executable, *arguments)

    def postroad(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(*COMMAND, *arguments)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A long-running command; its output goes to a file beside the service."""
        with (self.folder / "output").open("a") as output:
            process = subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.folder, env=self.environment, stdout=output, stderr=output, text=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def called(self) -> list[str]:
        path = self.folder / "called"
        return path.read_text().split() if path.exists() else []

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )


def until(true: Callable[[], bool], what: str, patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)
