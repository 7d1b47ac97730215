"""The long-running commands as a person or an orchestrator meets them: start, signals, the end."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.support.commands import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_and_succeed(shell: Shell, number: signal.Signals) -> None:
    with shell.running("dev shop:road") as running:
        assert "order.placed → write_receipt" in running.until("group receipts")
        running.until("started")
        running.signal(number)
        running.until("stopped")
        assert running.ended() == 0


def test_dev_prints_a_line_for_each_handled_event_unless_it_shall_be_quiet(shell: Shell) -> None:
    order = '{"order_id": "7", "cents": 1}'
    with shell.running("dev shop:road") as running:
        running.until("started")
        shell("publish shop:road order.placed", order)
        line = running.until("handled by")
        told = re.compile(r"\d\d:\d\d:\d\d  order\.placed  order/7  handled by receipts in [\d.]+ m?s\n")
        assert told.fullmatch(line)
        (event,) = json.loads(shell("outbox list shop:road --json"))
        shell(f"inbox replay receipts {event['id']} --app shop:road")
        assert told.fullmatch(running.until("handled by"))  # also what no broker has delivered
    for quiet in ("--quiet", "--log-format json"):
        with shell.running(f"dev shop:road {quiet}") as running:
            running.until("started")
            shell("publish shop:road order.placed", order)
            running.until("receipt 7")
            running.signal(signal.SIGTERM)
            running.until("stopped")
            assert "handled by" not in running.text


RETURNS = """
@event("order.returned", topic="shop.return.events", aggregate="order", key="order_id")
class OrderReturned(msgspec.Struct, frozen=True):
    order_id: str
"""


def test_topics_that_nobody_reads_are_told_once_at_the_start(shell: Shell) -> None:
    with shell.running("dev shop:road") as running:
        running.until("started")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1}')
        running.until("handled by")
        assert "nobody subscribes" not in running.text
    with (shell.folder / "shop.py").open("a") as module:
        module.write(RETURNS)
    with shell.running("run shop:road") as running:
        line = running.until("nobody subscribes")
        assert "nobody subscribes to shop.return.events: what is sent there reaches no one" in line


TELLING = """
import gc

@road.on(OrderReturned, group="telling")
def tell(event):
    print("loaded for good:", gc.get_freeze_count() > 10_000, flush=True)
"""


def test_what_is_loaded_at_the_start_is_no_work_for_the_garbage_collector(shell: Shell) -> None:
    with (shell.folder / "shop.py").open("a") as module:
        module.write(RETURNS + TELLING)
    with shell.running("dev shop:road --quiet") as running:
        running.until("started")
        shell("publish shop:road order.returned", '{"order_id": "7"}')
        assert "loaded for good: True" in running.until("loaded for good")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_insists(shell: Shell, number: signal.Signals, code: int) -> None:
    with shell.running("dev shop:road") as running:
        running.until("started")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 99}')
        running.until("handling")
        running.signal(number)
        running.until("A second one stops at once")
        running.signal(number)
        assert running.ended() == code


def test_the_start_told_to_machines_and_each_part_alone(shell: Shell) -> None:
    shell("db migrate shop:road")
    with shell.running("worker shop:road --group receipts --json") as worker:
        told = json.loads(worker.until("started"))
        assert told["groups"] == {"receipts": ["order.placed → write_receipt"]}
        assert told["relays"] == []
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1}')
        with shell.running("relay shop:road --json") as relay:
            told = json.loads(relay.until("started"))
            assert told["groups"] == {}
            assert told["relays"] == ["postroad_outbox"]
            worker.until("receipt 7")


def test_a_group_that_does_not_exist(shell: Shell) -> None:
    shell("db migrate shop:road")
    told = shell("worker shop:road --group reciepts", expect=1)
    assert "error: There is no group 'reciepts'" in told
    assert "receipts" in told


def test_tail_shows_events_and_takes_none_away(shell: Shell) -> None:
    shell("db migrate shop:road")
    shell("publish shop:road order.placed", '{"order_id": "before", "cents": 1}')
    with shell.running("tail shop:road --count 2 --json") as tail:
        tail.until("following")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1}', "--key", "seven")
        with shell.running("run shop:road") as running:
            # Its id comes from a key, not from the clock: it is seen when it is sent.
            running.until("receipt 7")
            assert json.loads(tail.until("order/7"))["type"] == "order.placed"
            shell("publish shop:road order.placed", '{"order_id": "8", "cents": 1}')
            assert json.loads(tail.until("order/8"))["version"] == 1
            running.until("receipt 8")
        assert tail.ended() == 0
    assert "before" not in tail.text


def test_tail_says_that_its_times_are_utc(shell: Shell) -> None:
    shell("db migrate shop:road")
    with shell.running("tail shop:road --count 1") as tail:
        tail.until("following")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1}')
        assert re.match(r"\d\d:\d\d:\d\d\.\d{6}Z  ", tail.until("order/7"))


def test_the_users_own_mistake_is_shown_with_the_users_traceback_alone(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("def road():\n    return 1 / 0\n\nroad()\n", encoding="utf-8")
    told = shell("dev broken:road", expect=1)
    assert "ZeroDivisionError" in told
    assert 'broken.py", line 4' in told
    assert "importlib" not in told
    assert "postroad/cli" not in told


CANARY = "canary-7d1f0c"


def test_a_password_never_appears(tmp_path: Path, fresh_postgresql_url: str) -> None:
    url = fresh_postgresql_url.replace("postgres@", f"postgres:{CANARY}@")
    assert CANARY in url
    shell = Shell(tmp_path, DATABASE_URL=url, POSTROAD_APP="shop:road")
    nowhere = Shell(tmp_path, DATABASE_URL=f"postgresql://shop:{CANARY}@127.0.0.1:1/shop")
    shell("run", expect=1)
    shell("db migrate")
    with shell.running("run --log-level debug") as running:
        running.until("started")
        shell("publish order.placed", f'{{"order_id": "{CANARY}", "cents": 1}}')
        running.until("receipt")
    shell("status")
    shell("status --json")
    shell(f"status --database-url {url}")
    shell("outbox list --json")
    shell("--debug outbox show 0198c2c5-7f0e-7d52-9f5e-2f9f6f0c7a11", expect=1)
    nowhere("dev shop:road", expect=1)
    nowhere("--debug run shop:road", expect=1)
    nowhere(f"db migrate --database-url mysql://shop:{CANARY}@127.0.0.1:1/shop", expect=1)
    # What the user's own handler prints is the user's own affair.
    told = [line for line in (shell.output + nowhere.output).splitlines() if not line.startswith("receipt")]
    assert [line for line in told if CANARY in line] == []
    assert any("***" in line for line in told)


def test_publishing_the_same_key_again_says_that_nothing_was_written(shell: Shell) -> None:
    shell("db migrate shop:road")
    order = '{"order_id": "7", "cents": 1}'
    first = shell("publish shop:road order.placed", order, "--key", "seven")
    again = shell("publish shop:road order.placed", '{"order_id": "8", "cents": 2}', "--key", "seven")
    assert "is in the outbox" in first
    assert "was there already: nothing was written" in again
    assert first.split()[1] == again.split()[1]
    assert json.loads(shell("publish shop:road order.placed --json", order, "--key", "seven"))["new"] is False
    assert json.loads(shell("publish shop:road order.placed --json", order))["new"] is True


def test_publishing_what_the_type_does_not_have_is_refused(shell: Shell) -> None:
    shell("db migrate shop:road")
    told = shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1, "cent": 2}', expect=1)
    assert told == "error: order.placed has no field 'cent'. Did you mean 'cents'? Nothing was stored.\n"
