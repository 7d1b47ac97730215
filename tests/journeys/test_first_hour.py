"""What a newcomer tries in the first hour, on the defaults and on PostgreSQL, with real processes.

The README block (1, 2) is in test_docs.py; the set-up, outage and status points (5, 6, 7, 9, 14, 15) are in the
command line's own journeys.
"""

import re
from pathlib import Path

import pytest

from tests.support.first_hour import ROOT, Newcomer, until


@pytest.fixture(params=["embedded", "postgresql"])
def newcomer(request: pytest.FixtureRequest, tmp_path: Path) -> Newcomer:
    url = request.getfixturevalue("fresh_postgresql_url") if request.param == "postgresql" else None
    someone = Newcomer(tmp_path, url)
    someone.does("setup()")
    return someone


def test_3_raising_before_the_commit_leaves_nothing(newcomer: Newcomer) -> None:
    (newcomer.folder / "wrong.py").write_text(
        "import asyncio, shop\n"
        "async def main():\n"
        "    try:\n"
        "        async with shop.road.session() as session, session.begin():\n"
        "            shop.road.add(session, shop.OrderPlaced(order_id='ghost', cents=1))\n"
        "            await session.flush()\n"
        "            raise RuntimeError\n"
        "    except RuntimeError:\n"
        "        pass\n"
        "    async with shop.road.running():\n"
        "        await shop.place('real')\n"
        "        await shop.road.drain(30)\n"
        "    await shop.road.aclose()\n"
        "asyncio.run(main())\n"
    )
    newcomer.python("wrong.py")
    assert newcomer.called == ["real"]
    assert newcomer.does("receipts()") == "real"


def test_4_add_without_a_transaction_shows_the_correct_call(newcomer: Newcomer) -> None:
    code = (
        "import asyncio, shop\n"
        "async def main():\n"
        "    async with shop.road.session() as session:\n"
        "        shop.road.add(session, shop.OrderPlaced(order_id='1', cents=1))\n"
        "asyncio.run(main())\n"
    )
    ran = newcomer.python("-c", code)
    assert ran.returncode == 1
    assert "NoTransaction" in ran.stderr
    assert "session.begin()" in ran.stderr
    assert "road.add(session, event)" in ran.stderr


def test_8_a_failing_handler_is_told_with_all_one_needs(newcomer: Newcomer) -> None:
    newcomer.does("place('fails')")
    with newcomer.running("run", "shop:road"):
        until(lambda: "printer" in newcomer.output, "the failure in the log")
    line = next(line for line in newcomer.output.splitlines() if "printer" in line)
    assert re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", line), "the event's id"
    assert "1 of 5" in line
    assert re.search(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line), "the time of the next attempt"
    assert "shop.py:" in line
    assert "write_receipt" in line
    assert not re.search(r"success|processed|handled", line)


def promised() -> float:
    """Seconds until an event comes again, as the README has it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    row = re.search(r"the event comes again within (\d+) seconds \(embedded broker\)", readme)
    assert row, "the README promises when the event of a killed worker comes again"
    return float(row[1])


@pytest.mark.timeout(180)
@pytest.mark.spec("T6")
def test_10_a_worker_killed_in_a_handler_is_replaced_and_the_effect_happens_once(newcomer: Newcomer) -> None:
    newcomer.does("place('hangs')")
    with newcomer.running("run", "shop:road") as first:
        until(lambda: newcomer.called == ["hangs"], "the first call")
        first.kill()
        first.wait()
    # Nobody else is given the event before the dead worker's lease is over, and then whoever asks.
    assert newcomer.does("deadlines()") == str(promised())
    (newcomer.folder / "released").touch()
    with newcomer.running("run", "shop:road"):
        until(lambda: newcomer.called == ["hangs", "hangs"], "the second call")
        until(lambda: newcomer.does("receipts()") == "hangs", "the effect")
    assert newcomer.does("receipts()") == "hangs"


@pytest.mark.timeout(180)
def test_10_a_worker_killed_in_a_repeated_attempt_is_replaced_as_soon(newcomer: Newcomer) -> None:
    newcomer.does("place('worsens')")
    with newcomer.running("run", "shop:road") as first:
        until(lambda: newcomer.called == ["worsens"] * 2, "the second call")
        first.kill()
        first.wait()
    # Nobody else is given the event before this is over, either.
    assert float(newcomer.does("lease()")) <= promised()
    (newcomer.folder / "released").touch()
    with newcomer.running("run", "shop:road"):
        until(lambda: newcomer.called == ["worsens"] * 3, "the third call")
        until(lambda: newcomer.does("receipts()") == "worsens", "the effect")
    assert newcomer.does("receipts()") == "worsens"


def test_11_two_workers_and_the_same_event_twice_have_one_effect(newcomer: Newcomer) -> None:
    twice = (
        "import asyncio, shop\n"
        "async def main():\n"
        "    async with shop.road.session() as session, session.begin():\n"
        "        added = shop.road.add(session, shop.OrderPlaced(order_id='one', cents=1), version=1)\n"
        "    await shop.road.runner().prepare()\n"
        "    await shop.road.broker.send([added.message, added.message])\n"
        "    await shop.road.aclose()\n"
        "asyncio.run(main())\n"
    )
    sent = newcomer.python("-c", twice)
    assert sent.returncode == 0, sent.stderr
    with newcomer.running("run", "shop:road") as one, newcomer.running("worker", "shop:road") as two:
        newcomer.does("place('two', 'three')")
        drained = newcomer.does("road.drain(60)")
        assert (one.poll(), two.poll(), drained) == (None, None, "")
    assert newcomer.does("receipts()") == "one three two"


def test_12_an_unknown_type_and_a_deleted_handler_lose_nothing(newcomer: Newcomer) -> None:
    service = (newcomer.folder / "shop.py").read_text()
    newcomer.does("place('before')")
    with newcomer.running("run", "shop:road"):
        until(lambda: newcomer.called == ["before"], "the first receipt")
        newcomer.does("road.drain(60)")
    renamed = service.replace('"order.placed"', '"order.accepted"')
    newcomer.does("place('orphan')")
    (newcomer.folder / "shop.py").write_text(renamed)
    newcomer.does("place('after')")
    with newcomer.running("run", "shop:road"):
        until(lambda: newcomer.called == ["before", "after"], "the known type is handled")
        until(lambda: "order.placed" in newcomer.output, "a warning about the unknown one")
        newcomer.does("road.drain(60)")
    assert "orphan" in newcomer.postroad("dlq", "list", "--app", "shop:road", "--json").stdout
    (newcomer.folder / "shop.py").write_text(service)
    assert newcomer.postroad("dlq", "retry", "--all", "--app", "shop:road").returncode == 0
    with newcomer.running("run", "shop:road"):
        until(lambda: "orphan" in newcomer.called, "the orphan comes back with its handler")


def test_12_a_group_that_lost_its_last_handler_is_told(newcomer: Newcomer) -> None:
    said = "The group receipts has no handler here and no worker elsewhere, and 1 message waits for it."
    service = newcomer.folder / "shop.py"
    complete = service.read_text()
    with newcomer.running("run", "shop:road"):
        newcomer.does("place('before')")
        until(lambda: newcomer.called == ["before"], "the first receipt")
        newcomer.does("road.drain(60)")
    service.write_text(complete.replace('group="receipts"', 'group="archive"'))
    newcomer.does("place('after')")
    with newcomer.running("run", "shop:road"):
        until(lambda: "after" in newcomer.called, "the other group's handler")
    with newcomer.running("run", "shop:road"):
        until(lambda: said in newcomer.output, "a warning about the deserted group")
    assert said in newcomer.postroad("status", "shop:road").stdout
    # Another program of the same service may have its handlers.
    (newcomer.folder / "other.py").write_text(complete)
    newcomer.does("place('hangs')")
    with newcomer.running("run", "other:road") as other:
        until(lambda: "hangs" in newcomer.called, "the other program is at work")
        told = newcomer.postroad("status", "shop:road").stdout
        other.kill()
    assert "hangs" not in newcomer.does("receipts()")
    assert "The group receipts" not in told


def test_13_what_cannot_travel_is_refused_at_add_and_nothing_is_stored(newcomer: Newcomer) -> None:
    values = ["float('nan')", "'a\\x00b'", "'\\ud800'", "'not a number'", "object()", "2**70"]
    (newcomer.folder / "wrong.py").write_text(
        "import asyncio, shop\n"
        "async def main():\n"
        f"    for value in [{', '.join(values)}]:\n"
        "        try:\n"
        "            async with shop.road.session() as session, session.begin():\n"
        "                shop.road.add(session, shop.OrderPlaced(order_id='1', cents=value))\n"
        "        except Exception as error:\n"
        "            print(type(error).__name__, error)\n"
        "    await shop.road.aclose()\n"
        "asyncio.run(main())\n"
    )
    refusals = newcomer.python("wrong.py").stdout.splitlines()
    assert len(refusals) == len(values)
    assert all(line.startswith("InvalidPayload order.placed: field cents:") for line in refusals), refusals
    assert newcomer.postroad("outbox", "list", "--app", "shop:road", "--json").stdout.strip() == "[]"
