"""A service whose relays and workers are processes of their own, to be killed and frozen at will.

Run as a program it is one of those processes; imported it is the supervisor's side.
"""

import argparse
import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Message, Postroad, RelayOptions, SubscriberOptions, event

LEASE: Final = 1.0
PER_COMMIT: Final = {"alpha": 1, "beta": 25}
GROUPS: Final = tuple(PER_COMMIT)
PER_TRANSACTION: Final = 10
_COLUMNS: Final = "consumer VARCHAR(64), account VARCHAR(64), version BIGINT"
TABLES: Final = {
    "postgresql": f"CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {_COLUMNS})",
    "mysql": f"CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, {_COLUMNS})",
    "sqlite": f"CREATE TABLE effect (id INTEGER PRIMARY KEY AUTOINCREMENT, {_COLUMNS})",
}


@event("account.credited", topic="bank.account.events", aggregate="account", key="account")
class Credited(msgspec.Struct, frozen=True):
    account: str
    cents: int


def make_road(database_url: str, broker: Path) -> Postroad:
    road = Postroad(
        "bank",
        database_url,
        f"embedded:{broker}",
        relay=RelayOptions(lease=LEASE, batch=200),
        subscriber=SubscriberOptions(ack_deadline=2 * LEASE, lock_ttl=LEASE),
    )

    for group in GROUPS:
        road.on(Credited, group=group, commit_every=PER_COMMIT[group])(crediting(group))
    return road


def crediting(group: str) -> Callable[[Credited, AsyncSession, Message], Awaitable[None]]:
    async def credit(event: Credited, session: AsyncSession, message: Message) -> None:
        await session.execute(
            text("INSERT INTO effect (consumer, account, version) VALUES (:consumer, :account, :version)"),
            {"consumer": group, "account": event.account, "version": message.version},
        )

    return credit


async def write(road: Postroad, events: int, keys: int) -> dict[str, int]:
    """Some events per transaction; every seventh transaction is rolled back. Returns the versions that stayed."""
    stayed: dict[str, int] = {}
    for number in range(events // PER_TRANSACTION):
        accounts = [f"a{(number * PER_TRANSACTION + offset) % keys}" for offset in range(PER_TRANSACTION)]
        try:
            async with road.session() as session, session.begin():
                for account in accounts:
                    road.add(session, Credited(account=account, cents=number))
                if number % 7 == 6:
                    raise _RolledBack
        except _RolledBack:
            continue
        for account in accounts:
            stayed[account] = stayed.get(account, 0) + 1
    return stayed


class _RolledBack(Exception):
    pass


@dataclass
class Books:
    lost: int
    phantom: int
    doubled: int
    out_of_order: int
    """Effects of one key in another order than their versions, in any group."""
    wire_out_of_order: int
    """First appearances in the broker's log in another order than their versions."""


async def audit(road: Postroad, broker: Path, stayed: dict[str, int]) -> Books:
    expected = {(group, account, v) for group in GROUPS for account, last in stayed.items() for v in range(1, last + 1)}
    async with road.store.reading() as connection:
        rows = (await connection.execute(text("SELECT consumer, account, version FROM effect ORDER BY id"))).fetchall()
    effects = [(row.consumer, row.account, row.version) for row in rows]
    return Books(
        lost=len(expected - set(effects)),
        phantom=len(set(effects) - expected),
        doubled=len(effects) - len(set(effects)),
        out_of_order=_inversions([((consumer, account), version) for consumer, account, version in effects]),
        wire_out_of_order=_inversions(_first_appearances(broker)),
    )


def _inversions(sequence: list[tuple[object, int]]) -> int:
    highest: dict[object, int] = {}
    wrong = 0
    for key, version in sequence:
        wrong += version < highest.get(key, 0)
        highest[key] = max(version, highest.get(key, 0))
    return wrong


def _first_appearances(broker: Path) -> list[tuple[object, int]]:
    with sqlite3.connect(broker) as connection:
        rows = connection.execute("SELECT attributes FROM message ORDER BY id").fetchall()
    connection.close()
    seen, first = set(), []
    for (raw,) in rows:
        attributes = msgspec.json.decode(raw)
        if attributes["event_id"] not in seen:
            seen.add(attributes["event_id"])
            first.append((attributes["aggregate_id"], int(attributes["version"])))
    return first


class Fleet:
    """The processes; a killed one is started again, as a supervisor would."""

    def __init__(self, database_url: str, broker: Path, folder: Path) -> None:
        self._url, self._broker, self._folder = database_url, broker, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.support.under_fire", name.split("-")[0], str(self._broker)]
        environment = os.environ | {
            "UNDER_FIRE_DATABASE": self._url,
            "PYTHONPATH": os.pathsep.join(["src", ".", *sys.path]),
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=Path(__file__).parents[2]
            )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()
        self.start(name)

    def freeze(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=30)

    def died(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() not in (None, 0, -signal.SIGKILL)]

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()[-3000:]


async def _serve(role: str, broker: Path) -> None:
    road = make_road(os.environ["UNDER_FIRE_DATABASE"], broker)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await road.runner(relay=role == "relay", groups=[] if role == "relay" else None).run(stop)
    await road.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("relay", "worker"))
    parser.add_argument("broker", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    asyncio.run(_serve(arguments.role, arguments.broker))
