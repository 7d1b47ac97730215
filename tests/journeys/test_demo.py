"""`make demo`, with few orders: the table it ends with is true."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.components import ROOT

SHOP = ROOT / "examples" / "shop"
HIDDEN = ("DATABASE_URL", "BROKER_URL", "MAKEFLAGS")
ORDERS, COMMITTED = 120, 110  # every tenth transaction, of five orders, is rolled back


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return inherited | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path), "COLUMNS": "120"}


def run(folder: Path, environment: dict[str, str], *command: str) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def table(told: str) -> dict[str, int]:
    """The counts of the last table, by what they count."""
    rows = re.findall(r"^│ (.+?) +│ +([\d,]+) │", told, re.MULTILINE)
    return {what: int(count.replace(",", "")) for what, count in rows}


def test_the_demo_kills_and_its_books_balance(environment: dict[str, str]) -> None:
    _, recipe = run(ROOT, environment, "make", "--dry-run", "--no-print-directory", "demo", f"ARGS=--orders {ORDERS}")
    python, *arguments = shlex.split(recipe.splitlines()[-1])
    assert python == ".venv/bin/python"
    code, told = run(ROOT, environment, sys.executable, *arguments)
    assert code == 0, told
    counts = table(told)
    assert counts.pop("deliveries") > 0
    counts.pop("duplicates on the wire, absorbed")  # as chance has it
    assert counts == {
        "events written": 2 * COMMITTED,
        "orders rolled back": ORDERS - COMMITTED,
        "processes killed with -9": 2,
        "effects": 3 * 2 * COMMITTED,
        "out of order": 0,
        "lost": 0,
        "effects doubled": 0,
        "events of rolled-back orders": 0,
    }


def test_in_a_pipe_the_demo_tells_its_story_line_by_line_as_it_goes(environment: dict[str, str]) -> None:
    command = (sys.executable, str(SHOP / "demo.py"))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout
        try:
            assert re.fullmatch(r" +\d+\.\d s  started relay-1 \(pid \d+\)\n", demo.stdout.readline())
            progress = next(line for line in demo.stdout if "receipts 0" in line)
        finally:
            demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert re.fullmatch(r" +\d+\.\d s  written [\d,]+ · sent [\d,]+ · receipts 0 · shipping .*\n", progress)
    assert "The books" not in rest  # it was far from its end when it told that


FORGETFUL = """
import asyncio, demo, shop
from pathlib import Path
from rich.console import Console
from sqlalchemy import text

async def main():
    await shop.create_tables()
    async with shop.road.running(), shop.road.session() as session:
        async with session.begin():
            for order_id in (6, 7):
                await shop.place_order(session, order_id, "ann", 100)
            await shop.pay_order(session, 6)
            await session.execute(text("UPDATE orders SET paid = true WHERE id = 7"))  # and no event of it
        await shop.road.drain()
    table, good = demo.result(demo.Show(2, Path(), Console()), await demo.Ledger().read(*demo.LEDGER))
    Console().print(table, good)
    await shop.road.aclose()

asyncio.run(main())
"""


def test_an_event_that_was_never_written_is_lost_in_every_group(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["PYTHONPATH"] += f"{os.pathsep}{SHOP}"
    code, told = run(tmp_path, environment, sys.executable, "-c", FORGETFUL)
    assert code == 0, told
    assert table(told) | {"events written": 3, "effects": 9, "lost": 3} == table(told)
    assert told.endswith("False\n")


def test_the_demo_says_when_it_takes_longer_than_promised(tmp_path: Path, environment: dict[str, str]) -> None:
    shutil.copytree(SHOP, tmp_path / "shop")
    demo = tmp_path / "shop" / "demo.py"
    demo.write_text(demo.read_text(encoding="utf-8").replace("\nLIMIT = 60\n", "\nLIMIT = 0\n"), encoding="utf-8")
    code, told = run(tmp_path, environment, sys.executable, str(demo), "--orders", "10")
    assert code == 1
    assert "It was to be done within 0 s and was not" in told
