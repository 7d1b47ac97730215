"""How an outbox table is called and laid out: ours, or one that was there before us."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from postroad.errors import ConfigurationError
from postroad.message import SHARDS
from postroad.naming import check_identifier

FACTS: Final = (
    "event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version", "schema_version",
    "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes", "occurred_at",
    "created_at", "deliver_at",
)  # fmt: skip
DELIVERY: Final = (
    "ordering_key",
    "shard",
    "state",
    "attempts",
    "next_attempt_at",
    "last_error",
    "published_at",
)
COLUMNS: Final = (*FACTS, *DELIVERY)


@dataclass(frozen=True)
class OutboxTable:
    """One outbox table of a service.

    `columns` maps our names to the table's own where they differ; `postroad db adopt` prints the map
    for an existing table. `append_only` keeps the delivery state in `<name>_delivery`.
    """

    name: str = "postroad_outbox"
    columns: Mapping[str, str] = field(default_factory=dict)
    append_only: bool = False
    topic: str = ""
    """Where rows go that other programs wrote without a topic."""
    payload: str = "bytes"
    """What the payload column holds: bytes, text or json."""
    ids: str = "native"
    """What the event id column holds: native (uuid, or 16 bytes) or text."""
    arrival: str = ""
    """A column that numbers the rows as they were written; rows of other programs are taken in its order."""

    def __post_init__(self) -> None:
        check_identifier(self.name)
        for ours, theirs in self.columns.items():
            if ours not in COLUMNS:
                raise ConfigurationError(
                    f"Outbox {self.name}: there is no column {ours!r}; known: {', '.join(COLUMNS)}."
                )
            check_identifier(theirs)
        if self.arrival:
            check_identifier(self.arrival)
        if self.append_only and self.adopted:
            raise ConfigurationError(
                f"Outbox {self.name}: append_only is for tables that Postroad creates; "
                "rows that others write would have no delivery. Leave out columns, topic and arrival, or append_only."
            )
        if self.payload not in ("bytes", "text", "json"):
            raise ConfigurationError(f"Outbox {self.name}: payload is {self.payload!r}; it can be bytes, text or json.")
        if self.ids not in ("native", "text"):
            raise ConfigurationError(f"Outbox {self.name}: ids is {self.ids!r}; it can be native or text.")

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def adopted(self) -> bool:
        """Whether the table was there before us, so that other programs may write to it."""
        return bool(self.columns or self.topic or self.arrival)

    @property
    def delivery(self) -> str:
        return f"{self.name}_delivery" if self.append_only else self.name

    @property
    def channel(self) -> str:
        """The NOTIFY channel that wakes this outbox's relays."""
        return self.name.replace(".", "_")


DEFAULT_OUTBOX: Final = OutboxTable()


@dataclass(frozen=True)
class Syntax:
    """What differs between the databases in the text of an outbox's statements."""

    mark: str
    """The quotation mark of identifiers."""
    argument: str
    """How the add routine names its arguments: `a_topic` or `NEW.topic`."""
    given: str
    """The version that the add routine has just allocated."""
    payload_in: Mapping[str, str]
    payload_out: Mapping[str, str]
    id_types: Mapping[str, str]
    id_in_list: Mapping[str, str]
    id_as: Mapping[str, str]
    """An event's {id} as an id column of each kind holds it."""
    contains: Mapping[str, str]
    """Whether :text is in a column, or :payload_text in a payload of each kind."""
    unsent_shard: str = ""
    """The column by which what is unsent is indexed, where no index can be of it alone."""

    def quote(self, identifier: str) -> str:
        return ".".join(f"{self.mark}{part}{self.mark}" for part in identifier.split("."))


def outbox_names(table: OutboxTable, syntax: Syntax) -> dict[str, str]:
    """What the placeholders in an outbox's statements and migrations stand for."""
    quote = syntax.quote
    names = {column: quote(table.columns.get(column, column)) for column in COLUMNS}
    names |= {"delivery_event_id": names["event_id"], "delivery_version": names["version"]}
    return names | _layout(table, syntax, names) | {
        "outbox": quote(table.name),
        "delivery": quote(table.delivery),
        "add": quote(f"{table.name}_add"),
        "due": quote(f"{table.name}_due"),
        "next": quote(f"{table.name}_next"),
        "outbox_literal": f"'{table.name}'",
        "unsent_shard": syntax.unsent_shard or names["shard"],
        "is_unsent": f"d.{syntax.unsent_shard} IS NOT NULL" if syntax.unsent_shard
                     else f"d.{names['state']} NOT IN ('SENT', 'SKIPPED')",
        "every_shard": ", ".join(map(str, range(SHARDS))),
        "unsent_index": quote(f"{table.channel}_unsent"),
        "age_index": quote(f"{table.channel}_age"),
        "held_index": quote(f"{table.channel}_held"),
        "sent_index": quote(f"{table.channel}_sent"),
        "skipped_index": quote(f"{table.channel}_skipped"),
        "payload_in": syntax.payload_in[table.payload],
        "payload_out": syntax.payload_out[table.payload].format(column=names["payload"]),
        "matches": _matches(table, syntax, names),
        "given": syntax.given,
        "arrival": _arrival(table, syntax, names),
        "add_trigger": quote(f"{table.channel}_add_trigger"),
        "id_type": syntax.id_types[table.ids],
        "id_in_list": syntax.id_in_list[table.ids],
        "stored_id": syntax.id_as[table.ids].format(id="e.event_id"),
    }  # fmt: skip


def _arrival(table: OutboxTable, syntax: Syntax, names: Mapping[str, str]) -> str:
    """In which order the rows of other programs were written, as far as the table can tell."""
    if table.arrival:
        return f"d.{syntax.quote(table.arrival)}"
    return f"{_facts(table)}.{names['occurred_at']}, d.{names['delivery_event_id']}"


def _matches(table: OutboxTable, syntax: Syntax, names: Mapping[str, str]) -> str:
    """Where a person's text is looked for; in payloads only if :payload_text is given."""
    facts = _facts(table)
    columns = [f"{facts}.{names['event_type']}", f"{facts}.{names['aggregate_id']}", f"d.{names['last_error']}"]
    found = " OR ".join(syntax.contains["column"].format(column=column) for column in columns)
    payload = syntax.contains[table.payload].format(column=f"{facts}.{names['payload']}")
    return f"({found} OR (:payload_text <> '' AND {payload}))"


def _facts(table: OutboxTable) -> str:
    return "o" if table.append_only else "d"


def _layout(table: OutboxTable, syntax: Syntax, names: Mapping[str, str]) -> dict[str, str]:
    """Delivery state in the event's row, or beside it in a table of its own."""
    values = f"{syntax.argument}ordering_key, {syntax.argument}shard"
    columns = f"{names['ordering_key']}, {names['shard']}"
    if not table.append_only:
        return {
            "o": _facts(table), "join_facts": "",
            "delivery_columns": f", {columns}", "delivery_values": f", {values}", "insert_delivery": "",
        }  # fmt: skip
    quote = syntax.quote
    own = f"{names['delivery_event_id']}, {names['delivery_version']}"
    return {
        "o": _facts(table),
        "join_facts": f"LEFT JOIN {quote(table.name)} o ON o.{names['event_id']} = d.{names['delivery_event_id']}",
        "delivery_columns": "",
        "delivery_values": "",
        "insert_delivery": f"INSERT INTO {quote(table.delivery)} ({own}, {columns}) "
        f"VALUES ({syntax.argument}event_id, {syntax.given}, {values});",
    }
