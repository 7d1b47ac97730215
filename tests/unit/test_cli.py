"""Every command that looks or acts, in this process, on a SQLite file and the embedded broker."""

import asyncio
import json
import re
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import msgspec
import pytest
from click.testing import CliRunner

from postroad import Backoff, BusinessError, PoisonError, Postroad, SubscriberOptions, event
from postroad.cli import main
from postroad.cli.reach import tell_unread_topics
from postroad.errors import BrokerUnavailable


@event("book.lent", topic="library.book.events", aggregate="book", key="book_id")
class BookLent(msgspec.Struct, frozen=True):
    book_id: str


@dataclass
class Library:
    """Its database and broker, and the command on them."""

    folder: Path

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'library.db'}"

    def __call__(self, *words: str, expect: int = 0) -> str:
        places = {"DATABASE_URL": self.database, "BROKER_URL": f"embedded:{self.folder / 'broker.db'}"}
        done = CliRunner().invoke(main, words, env=places | {"POSTROAD_APP": None}, prog_name="postroad")
        assert done.exit_code == expect, done.output
        return done.output

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def change(self, statement: str) -> None:
        connection = sqlite3.connect(self.folder / "library.db")
        with connection:
            connection.execute(statement)
        connection.close()

    def lend(self, *books: str, deliver: bool = False, delay: float | None = None) -> list[UUID]:
        return asyncio.run(self._lend(books, deliver, delay))

    async def _lend(self, books: tuple[str, ...], deliver: bool, delay: float | None) -> list[UUID]:
        road = Postroad(
            "library",
            self.database,
            f"embedded:{self.folder / 'broker.db'}",
            subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
        )

        @road.on(BookLent, group="shelves")
        async def take(book: BookLent) -> None:
            if book.book_id == "cursed":
                raise PoisonError("cursed")
            if book.book_id == "reserved":
                raise BusinessError("reserved")

        async with road:
            async with road.session() as session, session.begin():
                ids = [road.add(session, BookLent(book_id=book), delay=delay).id for book in books]
            if deliver:
                async with road.running():
                    await road.drain()
        return ids


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path)
    library("db", "migrate")
    return library


# -- db ------------------------------------------------------------------------------------------------


def test_db_status_and_sql_follow_the_migrations(tmp_path: Path) -> None:
    library = Library(tmp_path)
    sqlite3.connect(tmp_path / "library.db").close()
    (tmp_path / "library.db").touch()
    assert library.json("db", "status")["pending"][0] == "0001_core"
    script = library("db", "sql")
    assert "CREATE TABLE" in script
    connection = sqlite3.connect(tmp_path / "library.db")
    connection.executescript(script)
    connection.close()
    assert library.json("db", "status")["pending"] == []
    assert library("db", "sql").strip() == "-- up to date"
    assert "0001_core" in library("db", "status")
    assert library.json("db", "migrate")["applied"] == []


def test_db_sql_all_needs_no_database() -> None:
    words = ["db", "sql", "--all", "--database-url", "postgresql://shop:s3cret@127.0.0.1:1/shop"]
    done = CliRunner().invoke(main, words, env={"POSTROAD_APP": None})
    assert done.exit_code == 0
    assert "CREATE FUNCTION" in done.output


def test_db_adopt_shows_and_then_does(library: Library) -> None:
    library.change(
        "CREATE TABLE events_out (id TEXT PRIMARY KEY, aggregatetype TEXT NOT NULL, "
        "aggregateid TEXT NOT NULL, type TEXT NOT NULL, payload TEXT)"
    )
    shown = library("db", "adopt", "events_out")
    assert "aggregatetype" in shown
    assert "ALTER TABLE" in shown
    assert "OutboxTable('events_out'" in shown
    plan = library.json("db", "adopt", "events_out")
    assert plan["columns"]["aggregate_id"] == "aggregateid"
    assert plan["applied"] is False
    assert library.json("db", "adopt", "events_out", "--apply")["applied"] is True
    library.change("INSERT INTO events_out_add (event_id) SELECT '1' WHERE 0")
    assert "no table nothing_here" in library("db", "adopt", "nothing_here", expect=1)


# -- outbox --------------------------------------------------------------------------------------------


def test_outbox_list_pages_and_show(library: Library) -> None:
    ids = library.lend("a", "b", "c")
    listed = library("outbox", "list", "--limit", "2")
    assert f"next page: --after {ids[1]}" in listed
    rest = library.json("outbox", "list", "--after", str(ids[1]))
    assert [one["id"] for one in rest] == [str(ids[0])]
    assert library.json("outbox", "list", "--key", "book/b")[0]["key"] == "book/b"
    assert library("outbox", "list", "--state", "failed") == "no events\n"
    shown = library("outbox", "show", str(ids[0]))
    assert '{"book_id":"a"}' in shown
    assert library.json("outbox", "show", str(ids[0]))["payload"] == {"book_id": "a"}


def test_an_event_is_shown_with_what_each_group_made_of_it(library: Library) -> None:
    read, reserved = library.lend("a", "reserved", deliver=True)
    shown = library("outbox", "show", str(read))
    assert re.search(r"^shelves +succeeded +0 ", shown, re.MULTILINE)
    assert re.search(r"^shelves +refused .*reserved", library("outbox", "show", str(reserved)), re.MULTILINE)
    (told,) = library.json("outbox", "show", str(reserved))["groups"]
    assert (told["group"], told["state"]) == ("shelves", "refused")
    (waiting,) = library.lend("b")
    assert "no group has it" in library("outbox", "show", str(waiting))


def test_a_delayed_event_is_shown_with_its_aggregate_and_when_it_is_due(library: Library) -> None:
    (id,) = library.lend("a", delay=86_400)
    (listed,) = library.json("outbox", "list", "--key", "book/a")
    assert (listed["id"], listed["key"]) == (str(id), "book/a")
    due = f"{datetime.fromisoformat(listed['deliver_at']):%Y-%m-%d %H:%M:%S}Z"
    assert due > f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z"
    head, row = library("outbox", "list").splitlines()
    assert head.split()[:4] == ["id", "state", "due", "at"]
    assert f"NEW    {due}  book.lent  book/a" in row
    shown = [line.split() for line in library("outbox", "show", str(id)).splitlines()]
    assert ["due", "at", *due.split()] in shown
    assert ["key", "book/a"] in shown
    library.lend("b")
    assert "due at" not in library("outbox", "list", "--key", "book/b")


def test_what_is_scheduled_tells_where_it_waits_and_is_no_backlog(library: Library) -> None:
    kept, held = library.lend("a", "b", delay=86_400)
    library.change("UPDATE postroad_outbox SET state = 'SENT' WHERE aggregate_id = 'b'")
    head, *rows = library("outbox", "scheduled").splitlines()
    assert head.split()[:5] == ["id", "due", "at", "waits", "in"]
    assert {row.split()[0]: row.split()[3] for row in rows} == {str(kept): "outbox", str(held): "broker"}
    (own,) = library.json("status")["outboxes"]
    assert (own["waiting"], own["scheduled"], own["oldest_unsent"]) == (0, 1, None)
    due = f"{datetime.fromisoformat(own['next_due']):%Y-%m-%d %H:%M:%S}Z"
    (row,) = [line for line in library("status").splitlines() if line.startswith("postroad_outbox")]
    assert f"-              1          {due}" in row


def test_outbox_retry_and_skip(library: Library) -> None:
    a, b, c = library.lend("a", "b", "c")
    library.change("UPDATE postroad_outbox SET state = 'FAILED', last_error = 'no'")
    assert "will be tried again" in library("outbox", "retry", str(a), "--reason", "mended")
    assert "postroad outbox skip" in library("outbox", "show", str(b))
    assert "is skipped" in library("outbox", "skip", str(b), "--reason", "lost")
    assert [one["id"] for one in library.json("outbox", "list", "--state", "parked")] == [str(c)]
    assert library.json("outbox", "retry", "--all-parked") == {"retried": [str(c)]}
    states = {one["id"]: one["state"] for one in library.json("outbox", "list")}
    assert states == {str(a): "NEW", str(b): "SKIPPED", str(c): "NEW"}
    assert "no event is parked" in library("outbox", "retry", "--all-parked")
    assert "lost" in library("outbox", "show", str(b))
    assert "mended" in library("audit")
    acts = library.json("audit")
    assert [act["action"] for act in acts] == ["outbox.retry", "outbox.skip", "outbox.retry"]
    assert [act["action"] for act in library.json("audit", "--subject", str(b))] == ["outbox.skip"]
    assert f"next page: --before {acts[1]['id']}" in library("audit", "--limit", "2")
    assert library.json("audit", "--before", str(acts[1]["id"])) == acts[2:]


def test_outbox_acts_are_refused_clearly(library: Library) -> None:
    (id,) = library.lend("a")
    assert f"error: Event {id} is NEW" in library("outbox", "retry", str(id), expect=1)
    assert "error: There is no event" in library("outbox", "retry", str(UUID(int=7)), expect=1)
    assert "There is no event 0198c2c5 in the outbox" in library("outbox", "retry", "0198c2c5", expect=1)
    assert "--all-parked" in library("outbox", "retry", expect=2)
    assert "--reason" in library("outbox", "skip", str(id), expect=2)


# -- inbox and dead letters ----------------------------------------------------------------------------


def test_inbox_list_show_retry(library: Library) -> None:
    good, bad = library.lend("a", "reserved", deliver=True)
    assert {one["state"] for one in library.json("inbox", "list")} == {"succeeded", "refused"}
    failed = library("inbox", "list", "--failed", "--group", "shelves")
    assert str(bad) in failed
    assert str(good) not in failed
    page = library("inbox", "list", "--limit", "1")
    assert library.json("inbox", "list", "--after", page.split("--after ")[1].strip())
    shown = library("inbox", "show", "shelves", str(bad))
    assert "BusinessError: reserved" in shown
    assert '{"book_id":"reserved"}' in shown
    assert "will be handled again" in library("inbox", "retry", "shelves", str(bad))
    assert library.json("inbox", "show", "shelves", str(bad))["record"]["state"] == "waiting"
    assert "Only one that has failed" in library("inbox", "retry", "shelves", str(good), expect=1)
    assert "write it as group/id" in library("inbox", "list", "--after", str(bad), expect=2)
    assert library.json("inbox", "retry", "shelves", str(bad))["retried"] == [str(bad)]
    assert "--all-failed" in library("inbox", "retry", "shelves", expect=2)
    cause = next(one["fingerprint"] for one in library.json("failures"))
    narrowed = ("inbox", "retry", "shelves", "--all-failed", "--cause")
    assert library.json(*narrowed, "another")["retried"] == []
    assert library.json(*narrowed, cause, "--dry-run")["would_retry"] == [str(bad)]
    before = len(library.json("audit"))
    assert library.json(*narrowed, cause)["retried"] == [str(bad)]
    assert len(library.json("audit")) == before + 1
    assert [one["event_id"] for one in library.json("inbox", "list", "--cause", cause)] == [str(bad)]


def test_inbox_discard_only_shows_without_yes(library: Library) -> None:
    bad, cursed, good = library.lend("reserved", "cursed", "free", deliver=True)
    library.change(f"UPDATE postroad_inbox SET processed_at = NULL WHERE event_id = '{bad}'")
    words = ("inbox", "discard", "shelves", str(bad), str(cursed), "--reason", "lost")
    assert "Nothing was done" in library(*words)
    assert library.json("inbox", "show", "shelves", str(bad))["record"]["state"] == "failed"
    assert "is discarded" in library(*words, "--yes")
    for id in (bad, cursed):
        assert library.json("inbox", "show", "shelves", str(id))["record"]["state"] == "refused"
    assert library.json("dlq", "list") == []
    assert {one["action"]: one["detail"] for one in library.json("audit")} == {
        "inbox.discard": "lost",
        "dlq.discard": "lost",
    }
    told = library("inbox", "discard", "shelves", str(good), "--reason", "lost", "--yes", expect=1)
    assert "Only one that has failed can be discarded" in told


def test_dlq_list_show_retry(library: Library) -> None:
    (id,) = library.lend("cursed", deliver=True)
    assert "cursed" in library("dlq", "list")
    (dead,) = library.json("dlq", "list", "--topic", "library.book.events")
    assert dead["event_id"] == str(id)
    assert '{"book_id":"cursed"}' in library("dlq", "show", dead["id"])
    assert library.json("dlq", "show", str(id))[0]["id"] == dead["id"]
    assert library.json("dlq", "list", "--after", f"library.book.events~{dead['id']}") == []
    assert f"--after library.book.events~{dead['id']}" in library("dlq", "list", "--limit", "1")
    assert "--all" in library("dlq", "retry", expect=2)
    assert "--all" in library("dlq", "retry", dead["id"], "--group", "readers", expect=2)
    assert library.json("dlq", "retry", "--all", "--cause", "another")["count"] == 0
    assert "Group nobody is not of this service" in library("dlq", "retry", "--all", "--group", "nobody", expect=1)
    for narrowed in (("--group", "nobody"), ("--cause", "another")):
        assert library.json("dlq", "list", *narrowed) == []
    (cause,) = library.json("failures")
    assert library.json("dlq", "list", "--group", dead["group"], "--cause", cause["fingerprint"]) == [dead]
    narrowed = ("--group", dead["group"], "--cause", cause["fingerprint"])
    assert library.json("dlq", "retry", "--all", *narrowed, "--dry-run") == {"would_retry": [dead["id"]], "count": 1}
    assert "1 dead letter would be given back" in library("dlq", "retry", "--all", "--dry-run")
    assert library.json("dlq", "retry", "--all", *narrowed)["count"] == 1
    assert "no dead letters" in library("dlq", "list")
    assert "There is no dead letter" in library("dlq", "retry", dead["id"], expect=1)


@pytest.mark.parametrize("command", ["list", "show"])
def test_dead_letters_are_shown_without_the_database(library: Library, command: str) -> None:
    (id,) = library.lend("cursed", deliver=True)
    words = ["dlq", command, *([str(id)] if command == "show" else [])]
    nowhere = ["--database-url", "postgresql://library:s3cret@127.0.0.1:1/library"]
    told = library(*words, *nowhere)
    assert "cursed" in told
    (why,) = [line for line in told.splitlines() if line.startswith("attempts are the broker's count, not the inbox's")]
    assert "127.0.0.1:1" in why
    assert "s3cret" not in told
    places = {"BROKER_URL": f"embedded:{library.folder / 'broker.db'}", "POSTROAD_APP": None}
    done = CliRunner().invoke(main, [*words, *nowhere, "--json"], env=places)
    assert [one["event_id"] for one in json.loads(done.stdout)] == [str(id)]
    assert done.stderr == f"{why}\n"
    assert "attempts are" not in library(*words)


def test_dlq_discard_only_shows_without_yes(library: Library) -> None:
    library.lend("cursed", deliver=True)
    (dead,) = library.json("dlq", "list")
    assert "Nothing was done" in library("dlq", "discard", dead["id"], "--reason", "burnt")
    assert len(library.json("dlq", "list")) == 1
    assert "discarded" in library("dlq", "discard", dead["id"], "--reason", "burnt", "--yes")
    assert library.json("dlq", "list") == []
    assert library.json("audit")[0]["detail"] == "burnt"


# -- trace ---------------------------------------------------------------------------------------------


def test_an_application_is_no_id(library: Library) -> None:
    told = "library:road is no id .* here. If it is the application, write: postroad trace ID --app library:road"
    assert re.search(told, library("trace", "library:road", expect=2))
    nowhere = {"POSTROAD_APP": None, "DATABASE_URL": None}
    done = CliRunner().invoke(main, ["trace", "library:road"], env=nowhere)
    assert re.search(told, done.output)
    done = CliRunner().invoke(main, ["trace", "library:road", "--orphans"], env=nowhere)
    assert "postroad trace --orphans --app library:road" in done.output
    assert "Nothing here has the id or the correlation id flow-7" in library("trace", "flow-7", expect=1)


def test_what_looks_like_an_application_can_be_a_flow(library: Library) -> None:
    library.lend("a")
    library.change("UPDATE postroad_outbox SET correlation_id = 'lending:monday'")
    assert library("trace", "lending:monday").startswith("flow lending:monday")


# -- status and the rest -------------------------------------------------------------------------------


def test_status_lists_each_problem_with_its_command(library: Library) -> None:
    (cursed, reserved) = library.lend("cursed", "reserved", deliver=True)
    (parked,) = library.lend("a")
    library.change("UPDATE postroad_outbox SET state = 'FAILED' WHERE state = 'NEW'")
    told = library("status", "--database-url", library.database)
    again = f" --database-url {library.database}"
    assert f"postroad outbox retry {parked}{again}" in told
    assert f"postroad inbox retry shelves {reserved}{again}" in told
    assert f"postroad inbox retry shelves {cursed}" not in told
    assert f"--topic library.book.events{again}" in told
    assert library.json("status")["parked"][0]["event_id"] == str(parked)


def test_status_tells_who_holds_how_many_shards_and_for_how_long(library: Library) -> None:
    assert "shards" not in library("status").split("At work")[1]
    library.change(
        "UPDATE postroad_shard SET owner = 'host:7', token = '0198c2c5-7f0e-7d52-9f5e-2f9f6f0c7a11',"
        " expires_at = '2126-01-01T00:00:00.000000Z' WHERE shard < 100"
    )
    told = library("status").split("At work")[1]
    assert re.search(r"^postroad_outbox +100 +host:7 .*gone", told, re.MULTILINE)
    assert "postroad release host:7" in told
    assert library.json("status")["leases"][0]["shards"] == 100


def test_who_is_gone_is_not_told_to_be_running(library: Library) -> None:
    library.change(
        "INSERT INTO postroad_worker (id, kind, name, detail, started_at, seen_at) VALUES ('0198c2c5-7f0e-7d52-9f5e-"
        "2f9f6f0c7a11', 'worker', 'host:7', 'shelves', strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-60 seconds'),"
        " strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-30 seconds'))"
    )
    told = library("status").split("Gone without a word")[1]
    assert re.search(r"process +ran for +last seen\nworker +shelves +host:7 +30 s +3\d s", told)


def test_without_a_broker_the_database_still_answers(library: Library) -> None:
    words = ["status", "--database-url", library.database]
    nothing = {"POSTROAD_APP": None, "BROKER_URL": None, "DATABASE_URL": None}
    done = CliRunner().invoke(main, words, env=nothing)
    assert done.exit_code == 0
    assert "256 of 256 shards" in done.output
    assert "--broker-url" in CliRunner().invoke(main, ["dlq", "list", *words[1:]], env=nothing).output


def test_no_site_at_all() -> None:
    done = CliRunner().invoke(main, ["status"], env={"POSTROAD_APP": None, "DATABASE_URL": None})
    assert done.exit_code == 1
    assert "error: Which application?" in done.output


def test_a_broker_that_is_down_is_part_of_the_status(library: Library) -> None:
    told = library("status", "--broker-url", f"embedded:{library.folder / 'nowhere' / 'b.db'}")
    assert "The broker does not answer" in told
    assert "Outbox" in told


@pytest.mark.parametrize("trouble", [BrokerUnavailable("no management"), TimeoutError()])
async def test_a_broker_that_cannot_tell_who_reads_keeps_nobody_from_starting(
    trouble: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def subscriptions() -> None:
        raise trouble

    async with Postroad("library", f"sqlite:///{tmp_path}/library.db", "embedded:") as road:
        monkeypatch.setattr(road.broker, "subscriptions", subscriptions)
        await tell_unread_topics(road)
    assert caplog.text == ""


def test_unexpected_errors_are_short_and_say_where_the_rest_is(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("password=s3cret")

    monkeypatch.setattr("postroad.operations.acts", fail)
    told = library("audit", expect=1)
    assert "error: unexpected ValueError: password=***" in told
    assert "--debug" in told
    assert "Traceback" not in told
    assert "Traceback" in library("--debug", "audit", expect=1)


def test_a_mistyped_option_or_command_gets_a_suggestion(library: Library) -> None:
    assert "--state" in library("outbox", "list", "--stat", "NEW", expect=2)
    assert "Did you mean 'outbox'?" in library("outbx", expect=2)
    assert "No such command" in library("elsewhere", expect=2)


@pytest.mark.parametrize("command", main.list_commands(click.Context(main)))
def test_every_command_explains_itself(command: str) -> None:
    told = CliRunner().invoke(main, [command, "--help"]).output
    assert "Usage:" in told
    assert len(told.splitlines()) > 5


def test_words_that_are_no_text_are_refused_before_anything_else(library: Library) -> None:
    """Bytes that are no UTF-8 arrive from the shell as halves of surrogate pairs."""
    assert "'\\udcff' is not UTF-8 text" in library("outbox", "list", "--key", "\udcff", expect=2)


def test_an_id_that_no_broker_ever_gave_is_not_found(library: Library) -> None:
    assert "no dead letters" in library("dlq", "list", "--topic", "library.book.events", "--after", "9" * 25)
    assert "There is no dead letter 9" in library("dlq", "retry", "9" * 5_000, expect=1)


def test_an_error_cannot_steer_the_terminal(library: Library) -> None:
    assert "There is no event \\x1b[2J in the outbox" in library("outbox", "show", "\x1b[2J", expect=1)


@pytest.mark.parametrize("app", ["..shop:road", ".:road", "my shop:road", "a..b:road"])
def test_what_cannot_be_a_module_is_refused_without_a_traceback(library: Library, app: str) -> None:
    told = library("status", app, expect=1)
    assert "is no module's name" in told
    assert "Traceback" not in told
