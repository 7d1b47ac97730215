"""`postroad check` and `repair` as a person or a cron job uses them."""

import asyncio
import json
import random
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad.brokers.base import Topology
from postroad.cli import main
from postroad.errors import UnsupportedByBroker
from postroad.message import new_id
from postroad.operations import this_user
from tests.support.commands import Shell
from tests.support.genesis import TOPIC, StartSession, change, genesis

OLD = "2001-01-01T00:00:00Z"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A service whose only event has lost its outbox row."""
    urls = f"'sqlite:///{tmp_path}/kept.db', 'embedded:{tmp_path}/broker.db'"
    name = f"kept_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(f"from tests.support.genesis import genesis\nroad = genesis({urls})\n")
    monkeypatch.chdir(tmp_path)

    async def prepare() -> None:
        async with genesis(f"sqlite:///{tmp_path}/kept.db", f"embedded:{tmp_path}/broker.db") as road:
            await road.migrate()
            await road.execute(StartSession("s-1"))
            await change(road, "DELETE FROM postroad_outbox")

    asyncio.run(prepare())
    return f"{name}:road"


def told(*words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(main, words)
    return ran.exit_code, ran.output


@pytest.mark.spec("G8", "G9")
def test_a_fault_is_told_then_repaired_then_gone(app: str) -> None:
    code, output = told("check", app)
    assert code == 1
    assert "1 domain events without an outbox row" in output
    assert "postroad repair" in output
    code, output = told("repair", app)
    assert (code, "Nothing was done. Add --apply" in output) == (0, True)
    assert told("check", app)[0] == 1
    assert told("repair", app, "--apply")[0] == 0
    assert told("repair", app, "--apply") == (0, "nothing to repair\n")
    code, output = told("check", app)
    assert (code, output.startswith("everything fits together: 1 command, 1 domain event, ")) == (0, True)


def test_what_the_broker_does_not_tell_is_told_as_not_looked_at(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def subscriptions(_: object) -> None:
        raise UnsupportedByBroker("faraway", "list of subscriptions")

    assert told("repair", app, "--apply")[0] == 0
    monkeypatch.setattr("postroad.brokers.embedded.broker.EmbeddedBroker.subscriptions", subscriptions)
    code, output = told("check", app)
    assert (code, "fits together" in output, "postroad repair" in output) == (1, False, False)
    assert "not looked at: dead letters: UnsupportedByBroker: " in output
    report = json.loads(told("check", app, "--last", "--json")[1])
    assert (report["consistent"], len(report["report"]["not_looked_at"])) == (False, 1)


def test_a_service_without_commands_is_told_what_its_groups_have_handled(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("db migrate shop:road")
    looked = "everything fits together: 0 commands, 0 domain events, {} since "
    assert shell("check shop:road").startswith(looked.format("0 handlings"))
    shell("publish shop:road order.placed", '{"order_id": "o-1", "cents": 1}')
    with shell.running("dev shop:road") as dev:
        dev.until("o-1  handled by receipts")
        dev.signal(signal.SIGINT)
        assert dev.ended() == 0
    assert shell("check shop:road").startswith(looked.format("1 handling"))
    assert looked.format("1 handling") in shell("check shop:road --last")


@pytest.mark.spec("G8", "G9")
def test_programs_are_told_the_same(app: str) -> None:
    code, output = told("check", app, "--json", "--since", "1h")
    found = json.loads(output)
    assert (code, found["consistent"]) == (1, False)
    (finding,) = found["report"]["findings"]
    assert (finding["kind"], finding["count"], len(finding["ids"])) == ("missing_outbox", 1, 1)
    done = json.loads(told("repair", app, "--json", "--apply")[1])
    assert (done["applied"], done["rows"], done["repairs"][0]["ids"]) == (True, 1, finding["ids"])
    assert json.loads(told("repair", app, "--json", "--apply")[1])["rows"] == 0


def test_what_was_found_last_is_told_again_without_looking(app: str, tmp_path: Path) -> None:
    assert told("check", app, "--last") == (1, "error: There is no last check yet. Run: postroad check\n")
    assert told("check", app)[0] == 1
    assert told("repair", app, "--apply")[0] == 0
    code, output = told("check", "--last", "--database-url", f"sqlite:///{tmp_path}/kept.db")
    assert (code, f"by {this_user()}" in output, "1 domain events without" in output) == (1, True, True)
    assert told("verify", app) == (0, "every group got what was sent until 5 min ago\n")
    assert told("verify", app, "--last")[1].endswith("every group got what was sent\n")
    found = json.loads(told("verify", app, "--last", "--json")[1])
    assert (found["losses"], found["actor"], "at" in found) == ([], this_user(), True)
    assert told("verify", app, "--last", "--resend")[0] == 2


def test_a_check_that_cannot_be_kept_is_told_all_the_same(app: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        database.execute("DROP TABLE postroad_result")
    code, output = told("check", app)
    assert code == 1
    assert "The dashboard will not show this: " in output
    assert "1 domain events without an outbox row" in output


def test_without_the_application_its_rules_are_unknown(app: str, tmp_path: Path) -> None:
    code, output = told("check", "--database-url", f"sqlite:///{tmp_path}/kept.db")
    assert (code, "This needs the application itself" in output) == (1, True)


def test_a_consumers_ledger_is_taken_to_the_producer(app: str, tmp_path: Path) -> None:
    told_of = str(tmp_path / "ledger.json")
    assert told("verify", app, "--export", told_of)[0] == 0
    assert told("verify", app, "--against", told_of) == (0, "every group got what was sent\n")
    assert json.loads(told("verify", app, "--json")[1]) == {"losses": [], "uncompared": [], "resent": 0}


@pytest.fixture
def two_days_ago(app: str, tmp_path: Path) -> str:
    """A service whose group got three events of one minute, and lost two; nobody can tell a minute that is not over."""
    urls = f"sqlite:///{tmp_path}/kept.db", f"embedded:{tmp_path}/broker.db"
    when = datetime.now(UTC) - timedelta(days=2)

    async def prepare() -> None:
        async with genesis(*urls) as road:
            for number in range(4):
                id = new_id(when, random.Random(number))
                place = f"'{id}', 'Genesis.Session.Started', 'genesis.session.events'"
                await change(
                    road,
                    "INSERT INTO postroad_outbox (event_id, event_type, topic, aggregate_type, aggregate_id, version,"
                    f" payload, occurred_at, shard, ordering_key, state, published_at) VALUES ({place}, 'session',"
                    f" 's-{number}', 1, '{{}}', '{OLD}', 1, 'session/s-{number}', 'SENT', '{when:%FT%TZ}')",
                )
                if number < 2:
                    await change(
                        road,
                        "INSERT INTO {inbox} (consumer_group, event_id, event_type, topic, ordering_key, status)"
                        f" VALUES ('readers', {place}, 'session/s-{number}', 1)",
                    )
            known = f"'readers', 'Genesis.Session.Started', '{OLD}', '{OLD}'"
            await change(road, f"INSERT INTO {{handlers}} VALUES ({known})")

    asyncio.run(prepare())
    module = app.removesuffix(":road")
    with (tmp_path / f"{module}.py").open("a") as file:
        file.write("from tests.support.genesis import SessionStarted\n")
        file.write("@road.on(SessionStarted, group='readers')\nasync def read(event: SessionStarted): ...\n")
    return app


def there_is_a_topic(tmp_path: Path) -> None:
    async def apply() -> None:
        async with genesis(f"sqlite:///{tmp_path}/kept.db", f"embedded:{tmp_path}/broker.db") as road:
            await road.broker.apply(Topology((TOPIC,), ()))

    asyncio.run(apply())


def test_the_consumer_is_asked_for_ids_and_only_what_it_lacks_is_sent_again(two_days_ago: str, tmp_path: Path) -> None:
    app, ledger, lost = two_days_ago, str(tmp_path / "ledger.json"), str(tmp_path / "lost.json")
    verify = ("verify", app, "--since", "7d")
    assert told(*verify, "--export", ledger)[0] == 0
    code, output = told(*verify, "--against", ledger)
    assert (code, "not known yet" in output, "--export LEDGER --asked FILE" in output) == (1, True, True)
    assert "every group got" not in output
    code, output = told(*verify, "--against", ledger, "--resend", "--json")
    assert (code, json.loads(output)["resent"]) == (1, 0)
    Path(lost).write_text(output)
    assert told(*verify, "--export", ledger, "--asked", lost)[0] == 0
    code, output = told(*verify, "--against", ledger, "--resend", "--json")
    found = json.loads(output)
    assert (code, found["resent"], len(found["losses"][0]["ids"])) == (1, 0, 2)  # the broker has no such topic yet
    there_is_a_topic(tmp_path)
    code, output = told(*verify, "--against", ledger, "--resend")
    assert (code, "2 events sent again" in output) == (0, True)
    (tmp_path / "other.json").write_text("[]")
    code, output = told(*verify, "--export", ledger, "--asked", str(tmp_path / "other.json"))
    assert (code, "--against LEDGER --json > FILE" in output) == (1, True)
    assert told(*verify, "--asked", lost)[0] == 2


def test_no_success_is_told_of_what_was_not_compared(two_days_ago: str, tmp_path: Path) -> None:
    app, ledger = two_days_ago, tmp_path / "ledger.json"
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        seen = "SELECT 'readers', event_id, event_type, topic, ordering_key, 1 FROM postroad_outbox WHERE 1"
        columns = "consumer_group, event_id, event_type, topic, ordering_key, status"
        database.execute(f"INSERT INTO postroad_inbox ({columns}) {seen} ON CONFLICT DO NOTHING")
        database.execute(f"UPDATE postroad_outbox SET deliver_at = '{OLD}' WHERE aggregate_id = 's-0'")
        database.execute("UPDATE postroad_inbox SET ordering_key = NULL WHERE ordering_key = 'session/s-0'")
        database.commit()
    verify = ("verify", app, "--since", "7d")
    assert told(*verify, "--export", str(ledger))[0] == 0
    assert told(*verify, "--against", str(ledger)) == (0, "every group got what was sent\n")
    older = json.loads(ledger.read_text())
    del older["singles"]
    ledger.write_text(json.dumps(older))
    code, output = told(*verify, "--against", str(ledger))
    assert (code, output.startswith("1 event not compared: whether readers got them")) == (1, True)
    assert "every group got" not in output
    code, output = told(*verify, "--against", str(ledger), "--json")
    assert (code, json.loads(output)["uncompared"]) == (1, [{"group": "readers", "events": 1}])


def test_what_is_no_ledger_is_refused(app: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    code, output = told("verify", app, "--against", str(tmp_path / "other.json"))
    assert (code, "other.json is not a ledger" in output) == (1, True)
    assert told("verify", app, "--export", "x", "--resend")[0] == 2
