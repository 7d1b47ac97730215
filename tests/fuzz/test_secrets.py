"""Canaries: passwords and tokens that must not appear anywhere, whatever is printed, logged, raised or shown."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from postroad import Backoff, PoisonError, Postroad, RelayOptions, SubscriberOptions, event, logs
from postroad import redact as redactor
from postroad.brokers import connect_broker
from postroad.brokers.base import Topology
from postroad.brokers.kafka import client
from postroad.cli import main
from postroad.cli.output import as_json, tell
from postroad.clock import SystemClock
from postroad.errors import ConfigurationError
from postroad.redact import redact, redact_values
from postroad.stores import open_store
from postroad.testing.faulty_broker import FaultyBroker
from tests.fuzz.conftest import bounded
from tests.fuzz.test_command_line import COMMANDS, RUNS_ON

CANARIES = ("c4naryPlain", "c4nary@:/?#", "c4nary%'\" \\", "c4naryé&=;,+")
CUT = "c4nary/c4nary?c4nary=1"
"""If nobody has quoted it, a part of it is taken for the port, another for the path or an option."""
MARK = "4nary"
NAMES = ("password", "user_password", "passwd", "pwd", "client_secret", "apiKey", "access-key", "token", "refreshToken")
WORDS = {"ids": "1", "id": "00000000-0000-0000-0000-000000000007", "group": "clerks", "table": "postroad_outbox"}


@event("account.opened", topic="bank.account.events", aggregate="account", key="account")
class Opened(msgspec.Struct, frozen=True):
    account: str
    details: dict[str, Any]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redactor, "_known", set())
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(params=["human", "json"])
def logged(request: pytest.FixtureRequest) -> io.StringIO:
    stream = io.StringIO()
    logs.configure("debug", request.param, stream)
    return stream


def chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            todo += [one.__cause__, one.__context__]
            yield one


def dsns(postgresql: str, mariadb: str, password: str) -> list[str]:
    """Wrong passwords, wrong ports, wrong everything; quoted as it should be, and not."""
    found = []
    for scheme, server in (("postgresql", postgresql), ("mysql", mariadb)):
        here = server.rpartition("@")[2]
        for told in {password, quote(password, safe="")}:
            found += [f"{scheme}://nobody:{told}@{place}" for place in (here, "127.0.0.1:1/x", "127.0.0.1:port/x", "")]
            found.append(f"{scheme}://127.0.0.1:1/x?password={told}")
    return [*found, f"sqlite://nobody:{password}@host/x.db", f"oracle://nobody:{password}@host/x"]


@pytest.mark.parametrize("canary", CANARIES)
def test_no_failing_connection_tells_its_password(
    canary: str, postgresql_url: str, mariadb_url: str, logged: io.StringIO
) -> None:
    for url in dsns(postgresql_url, mariadb_url, canary):
        for error in chain(asyncio.run(failure_of(url))):
            assert MARK not in str(error), url
            assert MARK not in repr(error), url
    assert MARK not in logged.getvalue()


async def failure_of(url: str) -> BaseException:
    try:
        road = Postroad("bank", url, "embedded:")
    except ConfigurationError as refusal:
        return refusal
    shown = f"{road!r} {road.store!r} {road.store.address} {road.broker.address} {road.broker!r}"
    assert MARK not in shown
    log = logging.getLogger("postroad.test")
    try:
        async with road:
            await road.migrate()
    except Exception as error:
        log.exception("no connection to %s", url)
        return error
    raise AssertionError(f"{url} should not connect")


@pytest.mark.parametrize("canary", [*CANARIES, CUT])
def test_no_broker_that_cannot_be_reached_tells_the_password(
    canary: str, kafka_url: str, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.3)
    here = kafka_url.partition("://")[2]
    for told in {canary, quote(canary, safe="")}:
        urls = [f"{scheme}://nobody:{told}@127.0.0.1:1/" for scheme in ("amqp", "kafka", "kafkas", "pubsub")]
        urls += [f"kafka://nobody:{told}@{here}", f"kafka://nobody:{told}@host:port/", f"kafka://host/?password={told}"]
        urls += [f"{scheme}://nobody:12{mark}{told}@host/" for scheme in ("amqp", "kafka") for mark in "/?#"]
        urls += [f"pubsub://nobody:{told}@my-project", f"pubsub://my-project?password={told}"]
        for url in urls:
            for error in chain(asyncio.run(broker_failure_of(url))):
                assert MARK not in str(error), url
                assert MARK not in repr(error), url
    assert MARK not in logged.getvalue()


async def broker_failure_of(url: str) -> BaseException:
    try:
        broker = connect_broker(url, clock=SystemClock())
    except ConfigurationError as refusal:
        return refusal
    assert MARK not in f"{broker!r} {broker.address} {vars(broker)}"
    try:
        await broker.apply(Topology(("bank.account.events",)))
    except Exception as error:
        logging.getLogger("postroad.test").exception("no connection to %s", url)
        return error
    finally:
        await broker.aclose()
    raise AssertionError(f"{url} should not connect")


BROKERS = ("amqp://nobody:{}@127.0.0.1:1/", "kafka://nobody:{}@127.0.0.1:port/", "pubsub://nobody:{}@my-project")


@pytest.mark.parametrize(
    ("canary", "broker"), [*((canary, BROKERS[0]) for canary in CANARIES), *((CANARIES[1], url) for url in BROKERS[1:])]
)
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_command_tells_the_password_of_a_url(canary: str, broker: str, path: tuple[str, ...]) -> None:
    required = [
        WORDS.get(p.name or "", "x") for p in COMMANDS[path].params if p.required and p.param_type_name == "argument"
    ]
    reasons = [f"--{p.name}=x" for p in COMMANDS[path].params if p.required and p.param_type_name == "option"]
    for told in {canary, quote(canary, safe="")}:
        urls = {
            "DATABASE_URL": f"postgresql://nobody:{told}@127.0.0.1:1/x",
            "BROKER_URL": broker.format(told),
        }
        for extra in ([], ["--json"]):
            done = CliRunner().invoke(
                main, ["--debug", *path, *required, *reasons, *extra], env={"POSTROAD_APP": None, **urls}
            )
            assert MARK not in done.output, done.output


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A site with a parked event, a dead letter and a failed record, all of them full of canaries. What was logged
    meanwhile, to the last detail, is there as well."""
    folder = tmp_path_factory.mktemp("bank")
    places = {"DATABASE_URL": f"sqlite:///{folder / 'bank.db'}", "BROKER_URL": f"embedded:{folder / 'broker.db'}"}
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    logs.configure("debug", "json", stream)
    try:
        ids = asyncio.run(fill(places))
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return places | ids | {"LOG": stream.getvalue()}


async def fill(places: dict[str, str]) -> dict[str, str]:
    options = Backoff(attempts=1)
    road = Postroad(
        "bank", places["DATABASE_URL"], places["BROKER_URL"],
        relay=RelayOptions(backoff=options), subscriber=SubscriberOptions(backoff=options),
    )  # fmt: skip

    @road.on(Opened, group="clerks")
    async def refuse(event: Opened) -> None:
        raise PoisonError(f"login refused: password={CANARIES[0]} at postgresql://u:{CANARIES[0]}@db/x")

    headers = {"authorization": f"Bearer {CANARIES[0]}", "x-api-key": CANARIES[1], "session-token": CANARIES[3]}
    details = dict(zip(NAMES, CANARIES * 3, strict=False))
    nested = {"login": [details], "raw": json.dumps({"password": CANARIES[0]}), "url": f"amqp://u:{CANARIES[0]}@mq/"}
    vars(road)["broker"] = FaultyBroker(road.broker)
    async with road:
        await road.migrate()
        async with road.running(), road.session() as session:
            async with session.begin():
                added = road.add(session, Opened("a", {**details, **nested}), headers=headers)
            await road.drain()
            vars(road)["broker"].refuse = lambda message: (
                f"not with password={CANARIES[0]} at amqp://u:{CANARIES[0]}@mq/"
            )
            async with session.begin():
                parked = road.add(session, Opened("b", {**details, **nested}), headers=headers)
            await road.drain()
    return {"ID": str(added.id), "PARKED": str(parked.id)}


def test_no_log_tells_a_secret_of_a_payload_or_of_an_error(bank: dict[str, str]) -> None:
    assert "login refused" in bank["LOG"]
    assert bank["PARKED"] in bank["LOG"]
    assert MARK not in bank["LOG"]


@pytest.mark.parametrize("event", ["ID", "PARKED"])
@pytest.mark.parametrize("json_too", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("path", [path for path in COMMANDS if path[-1] not in RUNS_ON], ids=" ".join)
def test_no_command_tells_a_secret_of_a_payload(
    bank: dict[str, str], path: tuple[str, ...], json_too: bool, event: str
) -> None:
    words = WORDS | {"id": bank[event], "ids": bank[event]}
    required = [
        words.get(p.name or "", "x")
        for p in COMMANDS[path].params
        if p.param_type_name == "argument" and p.name in words
    ]
    reasons = [f"--{p.name}=x" for p in COMMANDS[path].params if p.required and p.param_type_name == "option"]
    places = {name: bank[name] for name in ("DATABASE_URL", "BROKER_URL")}
    args = [*path, *required, *reasons, *(["--json"] if json_too else [])]
    done = CliRunner().invoke(main, args, env={"POSTROAD_APP": None, **places})
    assert MARK not in done.output, done.output


def test_the_payload_is_there_to_be_shown(bank: dict[str, str]) -> None:
    done = CliRunner().invoke(main, ["outbox", "show", bank["ID"]], env={"POSTROAD_APP": None, **bank})
    assert done.exit_code == 0
    assert '"password":"***"' in done.output
    done = CliRunner().invoke(main, ["outbox", "show", bank["ID"], "--json"], env={"POSTROAD_APP": None, **bank})
    assert json.loads(done.output)["attributes"]["headers"]["x-api-key"] == "***"


@pytest.mark.parametrize("json_too", [False, True], ids=["text", "json"])
def test_who_follows_the_outbox_is_told_no_secret(tmp_path: Path, json_too: bool) -> None:
    places = {"DATABASE_URL": f"sqlite:///{tmp_path / 'bank.db'}", "BROKER_URL": f"embedded:{tmp_path / 'broker.db'}"}
    asyncio.run(migrated(places))
    script = [sys.executable, "-c", "from postroad.cli import main; main()"]
    following = subprocess.Popen(
        [*script, "tail", "--count", "1", *["--json"] * json_too],
        env=os.environ | places | {"POSTROAD_APP": ""}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with following:
        asyncio.run(written(places, following))
        output, errors = following.communicate(timeout=30)
    assert following.returncode == 0, errors
    assert "account.opened" in output
    assert MARK not in output + errors


async def migrated(places: dict[str, str]) -> None:
    async with Postroad("bank", places["DATABASE_URL"], places["BROKER_URL"]) as road:
        await road.migrate()


async def written(places: dict[str, str], following: "subprocess.Popen[str]") -> None:
    async with Postroad("bank", places["DATABASE_URL"], places["BROKER_URL"]) as road:
        assert following.stderr is not None
        await asyncio.to_thread(following.stderr.readline)  # from now on it follows
        async with road.session() as session, session.begin():
            road.add(session, Opened("a", {"password": CANARIES[0]}), headers={"x-api-key": CANARIES[1]})


@pytest.mark.parametrize("damage", ["*", "&", "!", "%", "@", "`", "{", "[", "'", '"', "|", "- ", ": "])
def test_no_command_tells_the_password_of_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    (tmp_path / "config.yaml").write_text(f"source: bank\nrabbitmq:\n  password: {damage}{CANARIES[0]}\n  port: [\n")
    (tmp_path / "damaged_bank.py").write_text(
        "from postroad import Postroad\nroad = Postroad.from_settings('config.yaml')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for extra in ([], ["--json"]):
        done = CliRunner().invoke(main, ["--debug", "status", *extra], env={"POSTROAD_APP": "damaged_bank:road"})
        assert done.exit_code != 0
        assert "config.yaml" in done.output
        assert MARK not in done.output


secrets = st.text(min_size=1, max_size=12).map(lambda rest: f"{MARK}{rest}{MARK}")


@given(secret=secrets, name=st.sampled_from(NAMES), depth=st.integers(0, 3))
@bounded(300)
def test_whatever_the_secret_its_name_hides_it(secret: str, name: str, depth: int) -> None:
    data: Any = {name: secret}
    for _ in range(depth):
        data = {"inner": [data]}
    assert MARK not in repr(redact_values(data))
    assert MARK not in as_json(data)
    assert MARK not in tell(data)
    assert MARK not in redact(json.dumps(data))
    assert MARK not in redact(json.dumps({"body": json.dumps({name: "x" + MARK})}))


@given(password=secrets)
@bounded(300)
def test_whatever_the_password_the_address_hides_it(password: str) -> None:
    store = open_store(f"postgresql://shop:{quote(password, safe='')}@db:5432/shop")
    assert MARK not in store.address
    assert MARK not in redact(f"postgresql://shop:{quote(password, safe='')}@db")
    # Once it was used it is known, and hidden wherever it stands alone.
    assert MARK not in redact(f"FATAL: ({password}) is wrong")
