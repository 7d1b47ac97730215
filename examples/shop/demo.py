"""`make demo`: the shop under fire, live in the terminal.

Orders are placed and paid, some transactions are rolled back on purpose, two relays and three consumer groups run in
processes of their own, and one relay and one worker are killed with -9 on the way. In the end the books are checked.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parent))

GROUPS = ("receipts", "shipping", "accounting")
TOGETHER = 5
ROLLED_BACK_EVERY = 10
LIMIT = 60
"""Seconds within which it is done, kills and all."""
PROGRESS_EVERY = 2
"""Seconds between two lines of progress, where the output is no terminal."""
LEDGER = {
    # By the orders, not by the outbox: an event that was never written is lost too.
    "due": "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM orders WHERE paid)",
    "written": "SELECT count(*) FROM postroad_outbox",
    "sent": "SELECT count(*) FROM postroad_outbox WHERE state = 'SENT'",
    "effects": "SELECT count(*) FROM effects",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT consumer, order_id, version FROM effects) e",
    "done": "SELECT count(*) FROM (SELECT DISTINCT e.consumer, e.order_id, e.version FROM effects e "
    "JOIN orders o ON o.id = e.order_id) e",
    "disorder": "SELECT count(*) FROM effects a JOIN effects b ON b.consumer = a.consumer AND b.order_id = a.order_id "
    "WHERE a.version < b.version AND a.id > b.id",
    "phantoms": "SELECT count(*) FROM effects e LEFT JOIN orders o ON o.id = e.order_id WHERE o.id IS NULL",
}


class DeliberateRollback(Exception):
    """A customer changed their mind in the middle of the transaction."""


# -- the processes -------------------------------------------------------------------------------------


async def write(orders: int, directory: Path) -> None:
    """Place and pay the orders, some at a time; every tenth transaction is rolled back after its events were added."""
    from shop import pay_order, place_order, road

    rolled_back = 0
    for number, first in enumerate(range(1, orders + 1, TOGETHER), 1):
        batch = range(first, min(first + TOGETHER, orders + 1))
        try:
            async with road.session() as session, session.begin():
                for order_id in batch:
                    await place_order(session, order_id, f"customer {order_id % 97}", 100 + order_id % 900)
                if number % ROLLED_BACK_EVERY == 0:
                    raise DeliberateRollback
        except DeliberateRollback:
            rolled_back += len(batch)
            continue
        async with road.session() as session, session.begin():
            for order_id in batch:
                await pay_order(session, order_id)
        report(directory, "writer", {"orders": batch[-1], "rolled_back": rolled_back})
    report(directory, "writer", {"orders": orders, "rolled_back": rolled_back, "done": True})
    await road.aclose()


async def serve(role: str, group: str | None, name: str, directory: Path) -> None:
    """A relay or a worker, until told to stop; it tells its counts twice a second."""
    from shop import road

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    runner = road.runner(relay=role == "relay", groups=[group] if group else [])

    async def tell() -> None:
        while True:
            for worker in (*runner.relays, *runner.subscribers):
                report(directory, name, asdict(worker.statistics))
            await asyncio.sleep(0.2)

    telling = asyncio.create_task(tell())
    await runner.run(stop)
    telling.cancel()
    for worker in (*runner.relays, *runner.subscribers):
        report(directory, name, asdict(worker.statistics))
    await road.aclose()


def report(directory: Path, name: str, counts: dict[str, Any]) -> None:
    path = directory / f"{name}.{os.getpid()}.json"
    path.with_suffix(".new").write_text(json.dumps(counts))
    path.with_suffix(".new").rename(path)


# -- the show ------------------------------------------------------------------------------------------


class Show:
    def __init__(self, orders: int, directory: Path, console: Console) -> None:
        self.orders, self.directory, self.console = orders, directory, console
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []
        self.story: list[str] = []
        self.started = self.progress_due = time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(44),
            TextColumn("{task.completed:>6,.0f} / {task.total:,.0f}"),
        )
        self.expected = (orders - orders // (ROLLED_BACK_EVERY * TOGETHER) * TOGETHER) * 2
        self.bars = {name: self.progress.add_task(name, total=self.expected) for name in ("written", "sent", *GROUPS)}

    def start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--role", *arguments, "--name", name]
        log = (self.directory / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        self.tell(f"started {name} (pid {self.processes[name].pid})")

    def kill(self, name: str, *restart: str) -> None:
        process = self.processes[name]
        process.kill()
        if process.wait() == -signal.SIGKILL:  # else it had ended before
            self.killed.append(name)
        self.tell(f"[red]kill -9 {name}[/] (pid {process.pid}) in the middle of its work")
        self.start(name, *restart)

    def tell(self, line: str) -> None:
        told = f"[dim]{time.monotonic() - self.started:5.1f} s[/]  {line}"
        self.story.append(told)
        if not self.console.is_terminal:
            self.console.print(told, soft_wrap=True)  # the console flushes each line

    def tell_progress(self) -> None:
        """Where no bars can be drawn: a line now and then."""
        if not self.console.is_terminal and time.monotonic() >= self.progress_due:
            self.progress_due = time.monotonic() + PROGRESS_EVERY
            self.tell(" · ".join(f"{task.description} {task.completed:,.0f}" for task in self.progress.tasks))

    def counts(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.directory.glob(f"{name}.*.json")]

    def total(self, name: str, what: str) -> int:
        return sum(counts.get(what, 0) for counts in self.counts(name))

    def screen(self) -> Group:
        return Group(
            Panel(self.progress, title="events on their way", title_align="left", border_style="cyan"),
            Panel("\n".join(self.story[-9:]), title="what happens", title_align="left", border_style="dim"),
        )

    def live(self) -> contextlib.AbstractContextManager[object]:
        """In a pipe nothing can be drawn anew: there the story is told line by line."""
        if not self.console.is_terminal:
            return contextlib.nullcontext()
        return Live(get_renderable=self.screen, console=self.console, refresh_per_second=8)

    async def watch(self, ledger: "Ledger") -> bool:
        """Until every event has had its effect in every group, or the time is over: whether it sufficed.

        The killings come when things are in full swing.
        """
        while time.monotonic() - self.started < LIMIT:
            # Asked first: what is written after the count must not be taken for nothing.
            all_written = any(counts.get("done") for counts in self.counts("writer"))
            books = await ledger.read()
            done = {group: await ledger.effects_of(group) for group in GROUPS}
            for name, count in {"written": books["written"], "sent": books["sent"], **done}.items():
                self.progress.update(self.bars[name], completed=count)
            self.tell_progress()
            if "relay-1" not in self.killed and books["sent"] > self.expected * 0.25:
                self.kill("relay-1", "relay")
            if "receipts" not in self.killed and done["receipts"] > self.expected * 0.35:
                self.kill("receipts", "worker", "--group", "receipts")
            if all_written and all(count >= books["written"] for count in done.values()):
                self.tell("[green]every event has had its effect in every group[/]")
                return True
            self.check_alive()
            await asyncio.sleep(0.1)
        self.tell(f"[red]not every event has had its effect after {LIMIT} s[/]")
        return False

    def check_alive(self) -> None:
        for name, process in self.processes.items():
            if process.poll():
                log = (self.directory / f"{name}.log").read_text()
                raise RuntimeError(f"{name} stopped with exit code {process.returncode}:\n{log[-2000:]}")

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=20)


class Ledger:
    """The books, read from the shop's own database."""

    def __init__(self) -> None:
        from shop import road

        self.store = road.store

    async def read(self, *names: str) -> dict[str, int]:
        async with self.store.reading() as connection:
            wanted = names or ("written", "sent")
            return {name: (await connection.execute(text(LEDGER[name]))).scalar_one() for name in wanted}

    async def effects_of(self, group: str) -> int:
        async with self.store.reading() as connection:
            query = text("SELECT count(*) FROM effects WHERE consumer = :group")
            return int((await connection.execute(query, {"group": group})).scalar_one())


def result(show: Show, books: dict[str, int]) -> tuple[Table, bool]:
    delivered = sum(show.total(group, "handled") + show.total(group, "duplicates") for group in GROUPS)
    duplicates = sum(show.total(group, "duplicates") for group in GROUPS)
    checks = {
        "out of order": books["disorder"],
        "lost": books["due"] * len(GROUPS) - books["done"],
        "effects doubled": books["effects"] - books["distinct"],
        "events of rolled-back orders": books["phantoms"],
    }
    table = Table(title=f"The books after {time.monotonic() - show.started:.0f} s", title_justify="left", min_width=64)
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("", style="dim")
    table.add_row(
        "events written",
        f"{books['written']:,}",
        f"{show.orders - show.total('writer', 'rolled_back'):,} orders, placed and paid",
    )
    table.add_row("orders rolled back", f"{show.total('writer', 'rolled_back'):,}", "their events went with them")
    table.add_row("processes killed with -9", f"{len(show.killed)}", f"{', '.join(show.killed)}; started again")
    table.add_row("deliveries", f"{delivered:,}", "as the workers counted; a killed one may miss a few")
    table.add_row("duplicates on the wire, absorbed", f"{duplicates:,}", "the price of at-least-once")
    table.add_row("effects", f"{books['effects']:,}", f"{books['written']:,} events × {len(GROUPS)} groups")
    for name, count in checks.items():
        table.add_row(name, f"[green]{count}[/]" if not count else f"[bold red]{count}[/]", "")
    return table, not any(checks.values())


NEXT = """
[bold]What to try next[/]
  [cyan]less examples/shop/shop.py[/]        the whole shop, a hundred lines
  [cyan]less docs/first-steps.md[/]          from here to a service of your own
  [cyan].venv/bin/postroad --help[/]         dev, relay, worker, status, outbox, dlq …
  [cyan]make test[/]                         the same promises, proved on PostgreSQL and MariaDB
"""
LATE = f"[bold red]It was to be done within {LIMIT} s and was not. What counts as lost may still be on its way.[/]"
WRONG = "[bold red]The books do not balance. That is a defect: please report it.[/]"


async def main(orders: int) -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="postroad-demo-") as folder, inside(Path(folder)) as directory:
        from shop import create_tables, road

        await create_tables()
        await road.runner().prepare()
        show = Show(orders, directory, console)
        with show.live():
            try:
                for relay in ("relay-1", "relay-2"):
                    show.start(relay, "relay")
                for group in GROUPS:
                    show.start(group, "worker", "--group", group)
                show.start("writer", "writer", "--orders", str(orders))
                in_time = await show.watch(Ledger())
            finally:
                show.stop()
        table, good = result(show, await Ledger().read(*LEDGER))
        console.print(table)
        console.print(LATE if not in_time else NEXT if good else WRONG)
        await road.aclose()
    return 0 if good and in_time else 1


@contextlib.contextmanager
def inside(directory: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield directory
    finally:
        os.chdir(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=2_000)
    parser.add_argument("--role", choices=("writer", "relay", "worker"), help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is None:
        sys.exit(asyncio.run(main(options.orders)))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    here = Path.cwd()
    if options.role == "writer":
        asyncio.run(write(options.orders, here))
    else:
        asyncio.run(serve(options.role, options.group, options.name, here))
