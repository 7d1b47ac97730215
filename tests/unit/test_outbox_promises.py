"""A connection may not commit before every event that it was given is written, or rolled back."""

from typing import cast

import pytest
from sqlalchemy import create_engine, text

from postroad.errors import WriteRefused
from postroad.outbox.promises import Promise, Promises, promises_of
from postroad.outbox.wake import Wake


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def soon(self) -> None:
        self.rung += 1


def made(promises: Promises, name: str) -> Promise:
    return promises.make({"event_type": name, "aggregate_type": "parcel", "aggregate_id": "7"})


def test_what_is_kept_may_be_committed_and_wakes_the_relays_then() -> None:
    promises, bell = Promises(), Bell()
    for event in ("first", "second"):
        promises.keep(made(promises, event), cast(Wake, bell))
    assert bell.rung == 0
    promises.commit()
    assert bell.rung == 1


def test_what_is_not_kept_stands_between_the_rows_and_their_commit() -> None:
    promises, bell = Promises(), Bell()
    first, _ = made(promises, "first"), made(promises, "second")
    promises.keep(first, cast(Wake, bell))
    with pytest.raises(WriteRefused, match="The event second of parcel '7' was added"):
        promises.commit()
    assert bell.rung == 0


def test_two_events_that_look_alike_are_two() -> None:
    promises, bell = Promises(), Bell()
    made(promises, "same")
    promises.savepoint()
    promises.keep(made(promises, "same"), cast(Wake, bell))
    promises.rolled_back()
    with pytest.raises(WriteRefused):
        promises.commit()


def test_rolling_back_to_a_savepoint_takes_back_what_was_promised_since() -> None:
    promises = Promises()
    before = made(promises, "before")
    promises.savepoint()
    made(promises, "after")
    promises.rolled_back()
    assert promises._open == [before]


def test_what_a_released_savepoint_held_belongs_to_the_one_around_it() -> None:
    promises = Promises()
    before = made(promises, "before")
    promises.savepoint()
    promises.savepoint()
    inner = made(promises, "inner")
    promises.released()
    assert promises._open == [before, inner]
    promises.rolled_back()
    assert promises._open == [before]


def test_a_savepoint_older_than_the_first_promise_takes_back_all() -> None:
    promises = Promises()
    made(promises, "first")
    made(promises, "second")
    promises.rolled_back()
    assert promises._open == []


def test_a_write_that_ends_after_its_rollback_hurts_nobody() -> None:
    promises, bell = Promises(), Bell()
    promises.savepoint()
    promise = made(promises, "event")
    promises.rolled_back()
    promises.keep(promise, cast(Wake, bell))
    promises.commit()
    assert bell.rung == 1


def test_the_savepoints_of_a_connection_are_followed() -> None:
    with create_engine("sqlite://").connect() as connection:
        connection.execute(text("SELECT 1"))
        before = made(promises_of(connection), "before")
        outer = connection.begin_nested()
        made(promises_of(connection), "outer")
        kept = connection.begin_nested()
        made(promises_of(connection), "inner")
        kept.commit()
        outer.rollback()
        assert promises_of(connection)._open == [before]
        with pytest.raises(WriteRefused, match="The event before"):
            connection.commit()
        connection.rollback()
