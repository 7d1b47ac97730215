"""Log records: one line each, with the event's identity, without secrets."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from postroad import logs

log = logging.getLogger("postroad.test")


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("aiosqlite").setLevel(logging.NOTSET)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.spec("P17")
def test_machines_get_json_with_the_events_identity() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    identity = {
        "event_id": "e-1",
        "event_type": "order.placed",
        "aggregate_id": "7",
        "aggregate_type": "order",
        "version": 3,
        "message_id": "m-1",
        "trace_id": "t-1",
        "ordering_key": "order/7",
        "queue": "order.inventory.queue",
        "consumer": "inventory",
    }
    log.warning("refused %s", "twice", extra=identity | {"payload": "not for the log"})
    entry = json.loads(stream.getvalue())
    assert identity.items() <= entry.items()
    assert (entry["message"], entry["level"], entry["logger"]) == (
        "refused twice",
        "WARNING",
        "postroad.test",
    )
    assert entry["time"].endswith("Z")
    assert "payload" not in entry


@pytest.mark.parametrize("form", ["human", "json"])
def test_a_line_break_in_the_data_makes_no_second_record(form: str) -> None:
    stream = io.StringIO()
    logs.configure(form=form, stream=stream)
    log.info("order %s", "7\r\n12:00:00 ERROR   all is lost \ud800")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("form", ["human", "json"])
def test_secrets_are_hidden_also_in_tracebacks(form: str) -> None:
    stream = io.StringIO()
    logs.configure(form=form, stream=stream)
    try:
        raise ConnectionError("amqp://shop:s3cret@mq/ refused")
    except ConnectionError:
        log.exception("cannot reach postgresql://shop:s3cret@db/")
    assert "s3cret" not in stream.getvalue()
    assert "ConnectionError" in stream.getvalue()


def test_people_get_text_and_no_line_of_a_traceback_passes_for_a_record() -> None:
    stream = Terminal()
    logs.configure(stream=stream)
    try:
        raise ValueError("x\n12:00:00 ERROR   all is lost")
    except ValueError:
        log.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert "ERROR   failed" in first
    assert all(line.startswith("  | ") for line in rest)


def test_the_level_holds() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_debugging_shows_postroads_lines_and_not_those_of_sqlites_driver() -> None:
    stream = io.StringIO()
    logs.configure("debug", stream=stream)
    log.debug("ours")
    logging.getLogger("aiosqlite").debug("executing functools.partial")
    logging.getLogger("aiosqlite").warning("trouble")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["ours", "trouble"]


def test_a_json_record_has_no_character_that_steers_a_terminal() -> None:
    stream = io.StringIO()
    logs.configure(form="json", stream=stream)
    log.info("\x9b2J \u2028 \x7f \x85 \udc80")
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert json.loads(stream.getvalue())["message"] == "\x9b2J \u2028 \x7f \x85 \udc80"
