"""`python -m examples.marketplace`, as a person starts it, with its page open, and as a person stops it."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.components import ROOT
from tests.support.databases import mariadb_admin
from tests.support.marketplace import BUYER, PLACES, SELLER

PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@contextmanager
def started(*arguments: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    port = free_port()
    command = [sys.executable, "-m", "examples.marketplace", "--port", str(port), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert "The shop is open" in process.stdout.readline()
            transport = httpx.HTTPTransport(retries=20)  # it says so just before it listens
            with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                yield client, process
        finally:
            process.kill()


def pictures(client: httpx.Client) -> Iterator[dict[str, Any]]:
    with client.stream("GET", "/flow") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)
@pytest.mark.spec("R10", "R11")
def test_a_person_buys_pays_and_lets_another_order_run_out_of_time(
    database_url: str, broker_address: str, tmp_path: Path
) -> None:
    settings = ("--database-url", database_url, "--broker-url", broker_address, "--payment-seconds", "2")
    with started(*settings, "--data", str(tmp_path)) as (client, process):
        assert "Second-hand marketplace" in client.get("/").text
        paid, forgotten = (
            client.post("/orders", json={"productId": n}, headers={"X-User-Id": str(BUYER)}).json()["id"]
            for n in (1, 2)
        )
        client.post(f"/orders/{paid}/pay", headers={"X-User-Id": str(BUYER)})
        client.post(f"/orders/{paid}/ship", headers={"X-User-Id": str(SELLER)})
        watching = pictures(client)
        for picture in watching:
            if all(event["consumer"] for event in picture["events"]):
                break
        ends = {order["id"]: (order["status"], order["cancel_reason"]) for order in picture["orders"]}
        assert ends == {paid: ("shipped", None), forgotten: ("cancelled", "timeout")}
        assert sorted(event["event_type"] for event in picture["events"]) == [
            "ORDER_CREATED",
            "ORDER_CREATED",
            "ORDER_PAID",
            "ORDER_STATUS_CHANGED",
            "ORDER_TIMEOUT",
            "ORDER_TIMEOUT",
        ]
        # The page still listens: stopping does not wait for it for ever.
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.mark.parametrize(("store_kind", "broker_kind"), [("mariadb", "embedded")])
def test_a_database_that_is_missing_is_created(database_url: str, broker_address: str, tmp_path: Path) -> None:
    name = urlsplit(database_url).path.strip("/")
    with mariadb_admin(database_url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")
    with started("--database-url", database_url, "--broker-url", broker_address) as (client, _):
        assert len(client.get("/products").json()) == 6


def test_what_keeps_it_from_opening_is_said_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.marketplace", "--database-url", "nonsense://x", "--data", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("The shop cannot open: ")
    assert "Traceback" not in ended.stderr
