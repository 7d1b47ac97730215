"""A connection or session may not commit before every event that it was given is written, or rolled back."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from postroad.errors import WriteRefused
from postroad.outbox import session as outbox_session
from postroad.outbox.promises import Promise, Promises, promises_of
from postroad.outbox.wake import Wake
from postroad.stores import open_store
from postroad.stores.tables import DEFAULT_OUTBOX


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def soon(self) -> None:
        self.rung += 1

    committed = soon


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


# -- sessions ------------------------------------------------------------------------------------------------

Add = Callable[[str], None]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    written: list[str] = []

    def write(connection: object, store: object, table: object, rows: list[dict[str, Any]]) -> None:
        written.extend(row["aggregate_id"] for row in rows)

    monkeypatch.setattr(outbox_session, "execute", write)
    return written


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        session.begin()
        yield session
    engine.dispose()


@pytest.fixture
def add(session: Session, written: list[str]) -> Add:
    store, wake = open_store("sqlite://"), cast(Wake, Bell())

    def add(parcel: str) -> None:
        row = {"event_type": "parcel.posted", "aggregate_type": "parcel", "aggregate_id": parcel}
        outbox_session.write_with_flush(session, store, DEFAULT_OUTBOX, row, wake)

    return add


def forget_one(session: Session) -> None:
    session.expunge(next(iter(session.new)))


@pytest.mark.parametrize("forget", [Session.expunge_all, forget_one])
def test_a_session_that_was_made_to_forget_an_event_does_not_commit(
    session: Session, add: Add, written: list[str], forget: Callable[[Session], None]
) -> None:
    add("forgotten")
    forget(session)
    add("kept")
    session.flush()
    with pytest.raises(WriteRefused, match=r"parcel\.posted of parcel 'forgotten' was added to this session"):
        session.commit()
    session.rollback()
    assert written == ["kept"]


def test_what_is_written_may_be_forgotten(session: Session, add: Add, written: list[str]) -> None:
    add("a")
    session.flush()
    session.expunge_all()
    session.commit()
    assert written == ["a"]


@pytest.mark.parametrize("end", [Session.rollback, Session.close, Session.reset])
def test_an_event_that_was_forgotten_is_taken_back_with_its_transaction(
    session: Session, add: Add, written: list[str], end: Callable[[Session], None]
) -> None:
    add("a")
    session.begin_nested()
    add("b")
    session.expunge_all()
    end(session)
    session.begin().commit()
    assert written == ["a"]


def test_an_event_that_was_forgotten_is_taken_back_with_its_savepoint_and_no_other(
    session: Session, add: Add, written: list[str]
) -> None:
    with session.begin_nested() as savepoint:
        add("a")
        session.expunge_all()
        with session.begin_nested() as inner:
            inner.rollback()
        savepoint.rollback()
    session.commit()
    session.begin()
    add("b")
    session.expunge_all()
    session.begin_nested().rollback()
    with pytest.raises(WriteRefused, match="'b'"):
        session.commit()
    session.rollback()
    assert written == []


def test_a_savepoint_is_not_released_without_an_event_that_was_added_in_it(session: Session, add: Add) -> None:
    savepoint = session.begin_nested()
    add("a")
    session.expunge_all()
    with pytest.raises(WriteRefused):
        savepoint.commit()
    savepoint.rollback()
    session.commit()
