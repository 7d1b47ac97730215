"""How an outbox table is called, what may be said of it, and which URL opens which store."""

from typing import Any

import pytest

from postroad.errors import ConfigurationError
from postroad.stores import open_store, queries
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable, outbox_names

APPEND_ONLY = OutboxTable("facts", append_only=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "no; table"},
        {"columns": {"state": "no; column"}},
        {"columns": {"colour": "red"}},
        {"arrival": "no; column"},
        {"payload": "xml"},
        {"ids": "number"},
        {"append_only": True, "columns": {"state": "status"}},
        {"append_only": True, "topic": "shop.events"},
        {"append_only": True, "arrival": "id"},
    ],
)
def test_a_table_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        OutboxTable(**wrong)


def test_what_others_may_write_to_was_there_before_us() -> None:
    assert [OutboxTable(**one).adopted for one in ({"columns": {"state": "s"}}, {"topic": "t"}, {"arrival": "id"})] == [
        True, True, True,
    ]  # fmt: skip
    assert not DEFAULT_OUTBOX.adopted
    assert not APPEND_ONLY.adopted


def test_delivery_state_stands_in_the_row_or_beside_it() -> None:
    assert (DEFAULT_OUTBOX.delivery, APPEND_ONLY.delivery) == ("postroad_outbox", "facts_delivery")
    store = open_store("sqlite://")
    in_row, beside = (outbox_names(table, store.syntax) for table in (DEFAULT_OUTBOX, APPEND_ONLY))
    assert (in_row["o"], in_row["join_facts"], in_row["insert_delivery"]) == ("d", "", "")
    assert in_row["delivery_columns"] == ', "ordering_key", "shard"'
    assert in_row["delivery_values"] == ", NEW.ordering_key, NEW.shard"
    assert (beside["o"], beside["delivery_columns"], beside["delivery_values"]) == ("o", "", "")
    assert beside["join_facts"] == 'LEFT JOIN "facts" o ON o."event_id" = d."event_id"'
    assert beside["insert_delivery"].startswith('INSERT INTO "facts_delivery" ("event_id", "version", "ordering_key"')


def test_columns_have_the_names_that_the_table_gives_them() -> None:
    table = OutboxTable("s.outbox", columns={"state": "status", "event_id": "id", "version": "v"}, arrival="n")
    names = outbox_names(table, open_store("mysql://db/shop").syntax)
    assert (names["state"], names["event_id"], names["delivery_event_id"]) == ("`status`", "`id`", "`id`")
    assert (names["delivery_version"], names["topic"], names["arrival"]) == ("`v`", "`topic`", "d.`n`")
    assert (names["outbox"], names["unsent_index"], table.channel) == ("`s`.`outbox`", "`s_outbox_unsent`", "s_outbox")
    unnumbered = outbox_names(OutboxTable("x", columns={"event_id": "id"}), open_store("mysql://db/shop").syntax)
    assert unnumbered["arrival"] == "d.`occurred_at`, d.`id`"
    assert outbox_names(APPEND_ONLY, open_store("sqlite://").syntax)["arrival"] == 'o."occurred_at", d."event_id"'


def test_a_placeholder_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nobody"):
        queries.fill("SELECT {nobody}", {"somebody": "x"})
    assert queries.fill("SELECT {somebody}", {"somebody": "x"}) == "SELECT x"


def test_statements_are_known_by_name_without_their_semicolon() -> None:
    assert queries.parse("-- name: one\nSELECT 1;\n\n-- name: two\n-- Why.\nSELECT 2;\n") == {
        "one": "SELECT 1",
        "two": "-- Why.\nSELECT 2",
    }


@pytest.mark.parametrize(
    ("url", "family"),
    [
        ("postgresql://db/shop", "PostgreSQL"),
        ("postgres://db/shop", "PostgreSQL"),
        ("mysql://db/shop", "MySQL"),
        ("mariadb://db/shop", "MySQL"),
        ("sqlite:///shop.db", "SQLite"),
        ("postgresql://db:1/shop", "PostgreSQL"),
        ("postgresql://db:65535/shop", "PostgreSQL"),
    ],
)
def test_a_url_opens_the_store_of_its_family(url: str, family: str) -> None:
    assert type(open_store(url)).__name__ == family


@pytest.mark.parametrize(
    "url",
    ["postgresql://db:0/shop", "postgresql://db:65536/shop", "sqlite://db/x", "sqlite://:7/x", "postgresql://db/a@b"],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url)
