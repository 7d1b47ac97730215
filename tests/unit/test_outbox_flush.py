"""In which order a flush writes its events: two transactions that lock the same counters must not meet head on."""

from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from postroad.errors import ConfigurationError
from postroad.outbox import Outbox, session
from postroad.stores import open_store
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.testing.office import Posted
from tests.support.outbox import SECOND, Weighed


def test_a_flush_goes_aggregate_by_aggregate_and_in_each_as_it_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def noting(connection: object, store: object, table: object, rows: list[dict[str, Any]]) -> None:
        written.extend(row["event_id"] for row in rows)

    monkeypatch.setattr(session, "execute", noting)
    outbox = Outbox(open_store("sqlite://"), "office", [DEFAULT_OUTBOX, SECOND])
    engine = create_engine("sqlite://")
    events = [Posted("c"), Weighed("a"), Posted("b"), Posted("a"), Weighed("c"), Posted("a")]
    with Session(engine) as writing, writing.begin():
        added = [str(outbox.add(writing, event).id) for event in events]
    outbox.close()
    engine.dispose()
    assert written == [added[place] for place in (1, 3, 5, 2, 0, 4)]


def test_an_event_is_not_written_to_another_kind_of_database() -> None:
    """Its rows and those of the business would not be in the same transaction."""
    outbox = Outbox(open_store("postgresql://db/shop"), "office")
    engine = create_engine("sqlite://")
    with Session(engine) as writing:
        writing.begin()
        outbox.add(writing, Posted("a"))
        with pytest.raises(ConfigurationError, match="is on a sqlite database"):
            writing.flush()
        writing.rollback()
    outbox.close()
    engine.dispose()
