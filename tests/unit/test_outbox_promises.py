"""A connection may not commit before every event that it was given is written, or rolled back."""

from typing import cast

import pytest

from postroad.errors import WriteRefused
from postroad.outbox.promises import Promises
from postroad.outbox.wake import Wake


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def soon(self) -> None:
        self.rung += 1


def test_what_is_kept_may_be_committed_and_wakes_the_relays_then() -> None:
    promises, bell = Promises(), Bell()
    for event in ("first", "second"):
        promises.make(event)
        promises.keep(event, cast(Wake, bell))
    assert bell.rung == 0
    promises.commit()
    assert bell.rung == 1


def test_what_is_not_kept_stands_between_the_rows_and_their_commit() -> None:
    promises, bell = Promises(), Bell()
    for event in ("first", "second"):
        promises.make(event)
    promises.keep("first", cast(Wake, bell))
    with pytest.raises(WriteRefused, match="The event second"):
        promises.commit()
    assert bell.rung == 0


def test_a_savepoint_takes_back_what_was_promised_since() -> None:
    promises = Promises()
    promises.make("before")
    promises.savepoint("one")
    promises.make("after")
    promises.rolled_back_to("one")
    assert promises._open == ["before"]


def test_a_savepoint_older_than_the_first_promise_takes_back_all() -> None:
    promises = Promises()
    promises.make("first")
    promises.make("second")
    promises.rolled_back_to("older")
    assert promises._open == []
    promises.commit()


def test_a_write_that_ends_after_its_rollback_hurts_nobody() -> None:
    promises, bell = Promises(), Bell()
    promises.savepoint("one")
    promises.make("event")
    promises.rolled_back_to("one")
    promises.keep("event", cast(Wake, bell))
    assert promises._open == []
    promises.commit()
