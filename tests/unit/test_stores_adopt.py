"""What is planned for a table that was there before us, column by column; the tables themselves are not asked here."""

from typing import Any

import pytest
from sqlalchemy import types

from postroad.errors import ConfigurationError
from postroad.stores import open_store
from postroad.stores.adopt import AdoptionPlan, _Found, _match, _outbox, _Plan
from postroad.stores.tables import OutboxTable

URLS = {"postgres": "postgresql://db/shop", "mysql": "mysql://db/shop", "sqlite": "sqlite:///shop.db"}
TEXT, NUMBER, TIME = types.Text(), types.BigInteger(), types.DateTime()
NEEDED = {"id": types.Uuid(), "type": TEXT, "aggregatetype": TEXT, "aggregateid": TEXT, "payload": types.JSON()}


def column(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "default": None} | more


def found(*columns: dict[str, Any], without: str = "", **more: Any) -> _Found:
    every = [column(name, kind) for name, kind in NEEDED.items() if name != without]
    fields: dict[str, Any] = {"key": ("id",), "states": frozenset(), "applied": frozenset()} | more
    return _Found("outbox", {one["name"]: one for one in (*every, *columns)}, **fields)


def mapped(kind: str, table: _Found) -> dict[str, str]:
    return _match(open_store(URLS[kind]), table)


def outbox(kind: str, table: _Found) -> OutboxTable:
    store = open_store(URLS[kind])
    return _outbox(store, table, _match(store, table))


def plan(kind: str, table: _Found) -> _Plan:
    store = open_store(URLS[kind])
    mapping = _match(store, table)
    return _Plan(store, _outbox(store, table, mapping), mapping, table)


# --- which column is which


def test_columns_are_known_by_their_usual_names_in_any_case() -> None:
    table = found(column("AGGREGATE_VERSION", NUMBER), column("Status", TEXT), column("timestamp", TIME))
    expected = {
        "event_id": "id", "event_type": "type", "aggregate_type": "aggregatetype", "aggregate_id": "aggregateid",
        "payload": "payload", "version": "AGGREGATE_VERSION", "state": "Status", "occurred_at": "timestamp",
    }  # fmt: skip
    assert mapped("postgres", table) == expected


def test_of_two_that_could_serve_the_better_name_does() -> None:
    table = found(column("event_id", TEXT), column("create_time", TIME), column("occurred_at", TIME))
    mapping = mapped("postgres", table)
    assert (mapping["event_id"], mapping["occurred_at"]) == ("event_id", "occurred_at")


def test_a_number_is_no_event_id() -> None:
    table = found(column("id", NUMBER), column("event_id", TEXT), without="id")
    assert mapped("mysql", table)["event_id"] == "event_id"
    with pytest.raises(ConfigurationError, match="no column for event_id "):
        mapped("mysql", found(column("id", NUMBER), without="id"))


@pytest.mark.parametrize("missing", ["type", "aggregatetype", "aggregateid", "payload"])
def test_without_what_is_needed_it_is_no_outbox(missing: str) -> None:
    with pytest.raises(ConfigurationError, match="does not look like an outbox"):
        mapped("postgres", found(without=missing))


@pytest.mark.parametrize(
    ("ours", "one", "serves"),
    [
        ("state", column("state", TEXT), True),
        ("state", column("state", NUMBER), False),
        ("state", column("state", types.Enum("NEW", "SENT")), False),
        ("occurred_at", column("occurred_at", TIME), True),
        ("occurred_at", column("occurred_at", TEXT), False),
        ("attempts", column("retry_count", types.Integer()), True),
        ("attempts", column("retry_count", TEXT), False),
        ("version", column("version", NUMBER), True),
        ("version", column("version", TEXT), False),
        ("topic", column("topic", TEXT), True),
        ("topic", column("topic", NUMBER), False),
        ("ordering_key", column("ordering_key", TEXT), False),
        ("ordering_key", column("postroad_ordering_key", TEXT), True),
        ("shard", column("shard", NUMBER), False),
    ],
)
def test_a_column_serves_if_it_can_hold_what_ours_holds(ours: str, one: dict[str, Any], serves: bool) -> None:
    assert (ours in mapped("postgres", found(one))) == serves


def test_on_sqlite_any_column_can_hold_anything() -> None:
    assert mapped("sqlite", found(column("occurred_at", TEXT)))["occurred_at"] == "occurred_at"


def test_what_we_added_ourselves_is_ours() -> None:
    applied = frozenset({("0002_outbox_in_row", "outbox")})
    table = found(column("ordering_key", TEXT), column("shard", NUMBER), applied=applied)
    assert table.adopted
    assert {"ordering_key", "shard"} <= set(mapped("postgres", table))
    for other in (("0002_outbox_in_row", "another"), ("0001_core", "outbox")):
        assert not found(applied=frozenset({other})).adopted


@pytest.mark.parametrize(("states", "serves"), [({"NEW", "SENT"}, True), ({"NEW", "PENDING"}, False)])
def test_a_state_that_says_other_things_is_not_ours(states: set[str], serves: bool) -> None:
    table = found(column("status", TEXT), states=frozenset(states))
    assert ("state" in mapped("postgres", table)) == serves


# --- the table as we shall call it


def test_a_column_that_cannot_serve_keeps_its_name() -> None:
    table = outbox("postgres", found(column("state", NUMBER), column("topic", TEXT)))
    assert table.columns == {
        "event_id": "id", "event_type": "type", "aggregate_type": "aggregatetype", "aggregate_id": "aggregateid",
        "state": "postroad_state",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "form"),
    [(types.JSON(), "json"), (TEXT, "text"), (types.String(9), "text"), (types.LargeBinary(), "bytes")],
)
def test_the_payload_is_read_as_it_is_kept(kind: Any, form: str) -> None:
    assert outbox("postgres", found(column("payload", kind), without="payload")).payload == form


@pytest.mark.parametrize(
    ("kind", "id", "ids"),
    [("mysql", types.String(64), "text"), ("postgres", types.Uuid(), "native"), ("sqlite", TEXT, "native")],
)
def test_ids_are_text_where_the_table_keeps_text(kind: str, id: Any, ids: str) -> None:
    assert outbox(kind, found(column("id", id), without="id")).ids == ids


@pytest.mark.parametrize(
    ("kind", "key", "arrival"),
    [("mysql", ("n",), "n"), ("mysql", ("id",), ""), ("mysql", ("n", "id"), ""), ("sqlite", ("id",), "rowid")],
)
def test_a_number_that_counts_the_rows_tells_their_order(kind: str, key: tuple[str, ...], arrival: str) -> None:
    assert outbox(kind, found(column("n", NUMBER), key=key)).arrival == arrival


def test_the_line_to_paste_says_what_is_unusual() -> None:
    usual = AdoptionPlan(OutboxTable("outbox"), [], [])
    assert usual.python == "OutboxTable('outbox', columns={}, topic='your.topic.events')"
    odd = OutboxTable("outbox", columns={"state": "status"}, payload="json", ids="text", arrival="n")
    assert AdoptionPlan(odd, [], []).python == (
        "OutboxTable('outbox', columns={'state': 'status'}, payload='json', ids='text', arrival='n', "
        "topic='your.topic.events')"
    )


# --- what has to be changed


MUST = {"nullable": False}


def test_a_column_that_we_do_not_fill_needs_a_default() -> None:
    table = found(
        column("n", NUMBER, **MUST), column("updated", TIME, **MUST), column("colour", TEXT, **MUST), key=("n",)
    )
    on_postgresql, on_mysql, on_sqlite = (plan(kind, table) for kind in URLS)
    assert on_postgresql._repairs() == [
        'ALTER TABLE "outbox" ALTER COLUMN "n" ADD GENERATED BY DEFAULT AS IDENTITY',
        'ALTER TABLE "outbox" ALTER COLUMN "updated" SET DEFAULT CURRENT_TIMESTAMP',
    ]
    assert on_mysql._repairs() == [
        "ALTER TABLE `outbox` MODIFY `n` BIGINT NOT NULL AUTO_INCREMENT",
        "ALTER TABLE `outbox` MODIFY `updated` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    ]
    assert on_sqlite._repairs() == []
    told = [[note.split()[1] for note in one.notes] for one in (on_postgresql, on_mysql, on_sqlite)]
    assert told == [["colour"], ["colour"], ["updated", "colour"]]


def test_a_number_that_is_no_key_is_not_counted_up() -> None:
    one = plan("postgres", found(column("n", NUMBER, **MUST)))
    assert one._repairs() == []
    assert "Column n is NOT NULL without a default" in one.notes[0]


def test_what_has_a_default_may_be_empty_or_is_ours_needs_no_repair() -> None:
    table = found(
        column("colour", TEXT, nullable=False, default="'red'"),
        column("shape", TEXT),
        column("version", NUMBER, **MUST),
        column("n", NUMBER, autoincrement=True, **MUST),
        key=("n",),
    )
    one = plan("mysql", table)
    assert (one._repairs(), one.notes) == ([], [])


def test_state_and_attempts_begin_by_themselves() -> None:
    table = found(column("status", TEXT, **MUST), column("retry_count", NUMBER, **MUST))
    assert plan("postgres", table)._repairs() == [
        'ALTER TABLE "outbox" ALTER COLUMN "status" SET DEFAULT \'NEW\'',
        'ALTER TABLE "outbox" ALTER COLUMN "retry_count" SET DEFAULT 0',
    ]
    begun = found(column("status", TEXT, nullable=False, default="'NEW'"), column("retry_count", NUMBER))
    assert plan("postgres", begun)._repairs() == []


def test_an_aggregate_id_becomes_text_where_it_is_none() -> None:
    table = found(column("aggregateid", types.Uuid()), without="aggregateid")
    one = plan("postgres", table)
    assert one._repairs() == [
        'ALTER TABLE "outbox" ALTER COLUMN "aggregateid" TYPE text USING CAST("aggregateid" AS text)'
    ]
    assert "becomes text" in one.notes[0]
    assert plan("mysql", table)._repairs() == []


@pytest.mark.parametrize(
    ("kind", "arrived"),
    [
        ("postgres", '"occurred_at" timestamptz DEFAULT clock_timestamp()'),
        ("mysql", "`occurred_at` DATETIME(6) DEFAULT (UTC_TIMESTAMP(6))"),
        ("sqlite", '"occurred_at" TEXT'),
    ],
)
def test_what_is_missing_is_added_and_rows_tell_when_they_came(kind: str, arrived: str) -> None:
    added = plan(kind, found(column("topic", TEXT)))._additions()
    assert len(added) == 17
    assert not any("topic" in one for one in added)
    assert next(one for one in added if "occurred_at" in one).endswith(arrived)
    assert next(one for one in added if "created_at" in one).endswith(arrived.split()[1])
    assert any(one.endswith("VARCHAR(8) NOT NULL DEFAULT 'NEW'") for one in added)


def test_what_was_published_counts_as_sent() -> None:
    published = column("published_at", TIME)
    one = plan("postgres", found(published))
    assert one._backfill() == ['UPDATE "outbox" SET "state" = \'SENT\' WHERE "published_at" IS NOT NULL']
    assert "Rows have no version" in one.notes[0]
    assert plan("postgres", found(published, column("state", TEXT)))._backfill() == []


@pytest.mark.parametrize(
    ("kind", "upsert"), [("postgres", "ON CONFLICT"), ("mysql", "ON DUPLICATE KEY UPDATE"), ("sqlite", "ON CONFLICT")]
)
def test_the_counters_stand_where_the_rows_do(kind: str, upsert: str) -> None:
    one = plan(kind, found(column("version", NUMBER)))
    (highest,) = one._backfill()
    assert upsert in highest
    assert one.notes == []
