"""Settings of the database under which something committed can vanish, or nothing can be written."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad


async def settings(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        rows = (await road.store.execute(connection, "settings_read")).rows
    for problem in judge(road.store.dialect, {row.name: str(row.value) for row in rows}):
        yield problem


def judge(dialect: str, values: Mapping[str, str]) -> Iterator[Problem]:
    for rule in RULES[dialect]:
        if rule.setting in values and not rule.good(values[rule.setting].lower()):
            yield Problem(rule.level, rule.cause, rule.cure, rule.command)


@dataclass(frozen=True, slots=True)
class _Rule:
    setting: str
    good: Callable[[str], bool]
    level: Level
    cause: str
    cure: str
    command: str


def _on(value: str) -> bool:
    return value in ("on", "1")


def _off(value: str) -> bool:
    return value in ("off", "0")


_POWER_CUT: Final = "a power cut can undo what was acknowledged already, and its effect is lost"
_NOT_HERE: Final = "Switch it on, unless this is a database for tests."


def _altered(setting: str, value: str) -> str:
    return f"ALTER SYSTEM SET {setting} = {value}; SELECT pg_reload_conf()"


RULES: Final[Mapping[str, tuple[_Rule, ...]]] = {
    "postgresql": (
        _Rule(
            "fsync",
            _on,
            Level.WARNING,
            "fsync is off: a power cut can destroy the database, and the events in it.",
            _NOT_HERE,
            _altered("fsync", "on"),
        ),
        _Rule(
            "full_page_writes",
            _on,
            Level.WARNING,
            "full_page_writes is off: a power cut can leave half-written pages behind.",
            _NOT_HERE,
            _altered("full_page_writes", "on"),
        ),
        _Rule(
            "synchronous_commit",
            lambda value: not _off(value),
            Level.WARNING,
            f"synchronous_commit is off: {_POWER_CUT}.",
            "Switch it on.",
            _altered("synchronous_commit", "on"),
        ),
        _Rule(
            "transaction_read_only",
            _off,
            Level.FAULT,
            "This server or user is read-only (a standby, perhaps): nothing can be written here.",
            "Give Postroad the URL of the primary, or let transactions write.",
            "SHOW default_transaction_read_only; SELECT pg_is_in_recovery()",
        ),
        _Rule(
            "default_transaction_isolation",
            lambda value: value == "read committed",
            Level.WARNING,
            "Transactions here are stricter than READ COMMITTED unless they say so: of two that write events of one "
            "aggregate at once, one fails with 40001.",
            "Repeat such transactions, or make READ COMMITTED the default again.",
            _altered("default_transaction_isolation", "'read committed'"),
        ),
    ),
    "mysql": (
        _Rule(
            "sql_mode",
            lambda value: "strict_" in value or "traditional" in value,
            Level.FAULT,
            "sql_mode is not strict: values that are too long are cut in silence, ids and keys too.",
            "Make it strict.",
            "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')",
        ),
        _Rule(
            "autocommit",
            _on,
            Level.WARNING,
            "autocommit is off for new sessions: whoever only reads keeps a transaction open, which holds back the "
            "purge of old rows.",
            "Switch it on.",
            "SET GLOBAL autocommit = 1",
        ),
        _Rule(
            "read_only",
            _off,
            Level.FAULT,
            "This server is read-only (a replica, perhaps): nothing can be written here.",
            "Give Postroad the URL of the primary.",
            "SELECT @@GLOBAL.read_only",
        ),
        _Rule(
            "innodb_flush_log_at_trx_commit",
            lambda value: value in ("1", "3"),
            Level.WARNING,
            f"innodb_flush_log_at_trx_commit is not 1: {_POWER_CUT}.",
            "Set it to 1, unless this is a database for tests.",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        ),
        _Rule(
            "binlog_format",
            lambda value: value != "statement",
            Level.FAULT,
            "The binary log is written by statement, which InnoDB refuses under READ COMMITTED, the isolation level of "
            "Postroad's transactions.",
            "Write it by row.",
            "SET GLOBAL binlog_format = 'ROW'",
        ),
    ),
    "sqlite": (
        _Rule(
            "journal_mode",
            lambda value: value == "wal",
            Level.FAULT,
            "The file is not in WAL mode: whoever reads holds up whoever writes.",
            "Put it where that mode can be (on a local disk), and switch it on.",
            "PRAGMA journal_mode = WAL",
        ),
    ),
}
