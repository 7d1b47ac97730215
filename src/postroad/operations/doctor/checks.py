"""The whole examination on one page, in the order in which it is made."""

from typing import Final

from postroad.operations.doctor import (
    consuming,
    database,
    files,
    ownership,
    read_models,
    relaying,
    schema,
    settings,
    snapshots,
    wire,
)
from postroad.operations.doctor.finding import SERVERS, Check

_DATABASE, _TABLES, _BROKER = ("database",), ("tables",), ("broker",)
_BOTH: Final = (*_TABLES, *_BROKER)

CHECKS: Final = (
    Check("database", "the database answers", database.answers),
    Check("local disk", "files of SQLite and of the embedded broker are on a local disk", files.local_disk),
    Check("clock", "the clocks of application and database agree", database.clock, _DATABASE, SERVERS),
    Check("settings", "the database keeps what was committed", settings.settings, _DATABASE),
    Check("snapshots", "nobody holds back the removal of old rows", snapshots.snapshots, _DATABASE, SERVERS),
    Check("tables", "Postroad's tables and routines are there and current", schema.tables, _DATABASE),
    Check("keys", "unique keys and indexes are as the migrations make them", schema.keys, _TABLES),
    Check("projections", "the tables of projections are as declared", read_models.projections, _DATABASE),
    Check("foreign keys", "no foreign key leaves the service's schema", ownership.foreign_keys, _TABLES, SERVERS),
    Check("grants", "the user writes to no other schema", ownership.grants, _TABLES, SERVERS),
    Check("rights", "the user has no more rights than needed", ownership.rights, _DATABASE, SERVERS),
    Check("relays", "a relay is alive, and no event waits for long", relaying.relays, _TABLES),
    Check("shards", "while relays are alive, each shard has an owner", relaying.shards, _TABLES),
    Check("leases", "no lease is held by somebody who is gone", relaying.leases, _TABLES),
    Check("parked", "no aggregate stands still behind a refused event", relaying.parked, _TABLES),
    Check("broker", "the broker answers", wire.answers),
    Check("topology", "topics, subscriptions, dead letters and schemas are as they should be", wire.topology, _BROKER),
    Check("bindings", "no queue gets what nobody asks for", wire.bindings, _BROKER),
    Check("confirms", "what was confirmed outlives the loss of a server", wire.confirms, _BROKER),
    Check("readers", "somebody subscribes to each topic", wire.readers, _BROKER),
    Check("retention", "the inbox remembers for as long as a message can return", wire.retention, _BROKER),
    Check("subscriptions", "a worker consumes each subscription, in time", consuming.subscriptions, _BOTH),
    Check("retries", "what failed is tried again when it is due", consuming.retries, _TABLES),
    Check("handlers", "no handler was deleted while its events are on their way", consuming.handlers, _BOTH),
    Check("dead letters", "there are no dead letters", consuming.dead_letters, _BROKER),
)
