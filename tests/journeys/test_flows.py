"""Correlation and causation flow by themselves: event → command → event, over brokers and processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad import Postroad
from postroad.cli import main
from postroad.errors import OperationRefused
from postroad.operations import orphans, trace_of
from tests.support.genesis import (
    FinishSession,
    LibraryExtended,
    ProposeTheme,
    SessionFinished,
    SessionStarted,
    StartSession,
    ThemeProposed,
    change,
    genesis,
)

TRACE = import_module("postroad.operations.trace")  # the package has a function by the same name
WHOLE = [
    "Command.Genesis.Session.Start",
    "Genesis.Session.Started",
    "Command.Genesis.Session.Theme.Propose",
    "Genesis.Session.Theme.Proposed",
    "Command.Genesis.Session.Finish",
    "Genesis.Session.Finished",
    "Genesis.Library.Extended",
]


def story(url: str, broker: str) -> Postroad:
    """Each event brings about the next command: once in the handler's transaction, once for a worker."""
    road = genesis(url, broker)

    @road.on(SessionStarted, group="muse")
    async def inspire(event: SessionStarted, session: object, road: Postroad) -> None:
        await road.execute(ProposeTheme(event.session_id), session=session)

    @road.on(ThemeProposed, group="ending")
    def end(event: ThemeProposed, session: object, road: Postroad) -> None:
        road.submit(session, FinishSession(event.session_id))

    road.finished = asyncio.Event()

    @road.on(SessionFinished, group="reader")
    async def read(event: SessionFinished, road: Postroad) -> None:
        road.finished.set()

    @road.on(LibraryExtended, group="library")  # RabbitMQ takes no event that nobody wants
    async def shelve(event: LibraryExtended) -> None: ...

    return road


async def told(road: Postroad, correlation_id: str) -> None:
    """Runs until the story is over."""
    async with road.running():
        async with road.session() as session, session.begin():
            await road.submit(session, StartSession("s-1"), correlation_id=correlation_id, user_id="ada")
        async with asyncio.timeout(60):
            await road.finished.wait()
            await road.drain()


@pytest.fixture
async def road(database_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    async with story(database_url, f"embedded:{tmp_path / 'broker.db'}") as road:
        await road.migrate()
        yield road


@pytest.mark.spec("G5")
@pytest.mark.parametrize("broker", ["embedded", "rabbitmq"])
@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_a_flow_runs_from_event_to_command_to_event_over_the_broker(
    database_url: str, broker: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("rabbitmq_url") if broker == "rabbitmq" else f"embedded:{tmp_path / 'b.db'}"
    async with story(database_url, address) as road:
        await road.migrate()
        await told(road, "flow-1")
        found = await road.trace("flow-1")
        assert [step.type for step in found] == WHOLE
        assert {step.correlation_id for step in found} == {"flow-1"}
        start, started, propose, proposed, finish, finished, extended = found
        assert [step.causation_id for step in found] == [
            None, start.id, started.id, propose.id, proposed.id, finish.id, finish.id,
        ]  # fmt: skip
        assert {step.state for step in found} == {"COMPLETED", "SENT"}
        assert [(one.group, one.state) for one in started.handled] == [("muse", "succeeded")]
        assert [(one.group, one.state) for one in finished.handled] == [("reader", "succeeded")]
        assert found.broken == []
        assert [one.message.user_id for one in await road.events.correlated("flow-1")] == ["ada"] * 4
        assert extended.version == proposed.version - 1 == 1


@pytest.mark.spec("G5")
async def test_any_id_of_a_flow_leads_to_the_whole_of_it(road: Postroad) -> None:
    await told(road, "flow-1")
    whole = await road.trace("flow-1")
    for step in whole:
        assert (await trace_of(road.store, road.outboxes, step.id)).steps == whole.steps
    with pytest.raises(OperationRefused, match="Nothing here has the id or the correlation id flow-2"):
        await trace_of(road.store, road.outboxes, "flow-2")
    assert (await road.trace("flow-2")).steps == []
    assert await orphans(road.store, road.outboxes, road.clock.now() - timedelta(hours=24)) == []


@pytest.mark.spec("G5")
async def test_a_flow_that_began_in_another_service_begins_here_with_what_was_received(
    road: Postroad, tmp_path: Path
) -> None:
    """The other service has a database of its own: here only the inbox knows its event."""
    async with Postroad("elsewhere", f"sqlite:///{tmp_path / 'elsewhere.db'}", road.broker_url) as elsewhere:
        await elsewhere.migrate()
        await road.execute(StartSession("s-1"))
        async with road.running():
            await road.finished.wait()
            road.finished.clear()
            async with elsewhere.running(), elsewhere.session() as session:
                async with session.begin():
                    added = elsewhere.add(session, ThemeProposed("s-1", 9), correlation_id="flow-9")
                await elsewhere.drain()
                await road.finished.wait()
            await road.drain()
        found = await trace_of(road.store, road.outboxes, "flow-9")
    first, second, *_ = found
    assert (first.id, first.state, first.type) == (str(added.id), "RECEIVED", "Genesis.Session.Theme.Proposed")
    assert (second.causation_id, second.correlation_id) == (first.id, "flow-9")
    assert found.broken == []
    assert (await trace_of(road.store, road.outboxes, str(added.id))).steps[0].id == first.id


@pytest.mark.spec("G5")
async def test_broken_links_and_orphans_are_found(road: Postroad) -> None:
    (started,) = await road.execute(StartSession("s-1"), correlation_id="flow-1")
    await road.execute(FinishSession("s-1"), correlation_id="flow-2")
    async with road.session() as session, session.begin():
        (alone,) = await road.events.append(session, [SessionStarted("s-2", "")])
    nowhere = "00000000-0000-7000-8000-000000000001"
    await change(road, f"UPDATE {{commands}} SET causation_id = '{nowhere}' WHERE correlation_id = 'flow-1'")
    await change(road, f"UPDATE {{commands}} SET causation_id = '{started.id}' WHERE correlation_id = 'flow-2'")
    (missing,) = (await road.trace("flow-1")).broken
    assert missing.reason == f"its cause {nowhere} is not here"
    (changed,) = (await road.trace("flow-2")).broken
    assert changed.reason == f"its cause {started.id} belongs to another flow, flow-1"
    found = await orphans(road.store, road.outboxes, road.clock.now() - timedelta(hours=1))
    assert {(one.step.id, one.reason) for one in found} == {
        (missing.step.id, missing.reason),
        (changed.step.id, changed.reason),
        (str(alone.id), "nothing has caused it"),
    }
    assert await orphans(road.store, road.outboxes, road.clock.now() + timedelta(hours=1)) == []


@pytest.mark.spec("G5")
async def test_no_broken_link_is_missed_however_many_hold(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, also where many happened at the same moment."""
    monkeypatch.setattr(TRACE, "_PAGE", 2)
    for n in range(5):
        await road.execute(StartSession(f"s-{n}"), correlation_id=f"flow-{n}")
    once = {"sqlite": "2026-01-01T00:00:00.000000Z"}.get(road.store.dialect, "2026-01-01 00:00:00")
    await change(road, f"UPDATE {{domain_events}} SET occurred_at = '{once}'")
    since = road.clock.now() - timedelta(days=10_000)
    assert await orphans(road.store, road.outboxes, since) == []
    await change(road, "UPDATE {commands} SET causation_id = 'gone' WHERE causation_id IS NULL")
    assert len(await orphans(road.store, road.outboxes, since)) == 5
    await change(road, "UPDATE {domain_events} SET causation_id = 'gone'")
    assert len(await orphans(road.store, road.outboxes, since)) == 10
    await change(road, "DELETE FROM {domain_events}")
    await change(road, "UPDATE postroad_outbox SET causation_id = 'gone'")
    found = await orphans(road.store, road.outboxes, since)
    assert (len(found), {one.step.state for one in found}) == (10, {"COMPLETED", "NEW"})


async def test_a_flow_that_goes_on_says_so(road: Postroad, shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRACE, "LONGEST", 1)
    await road.execute(StartSession("s-1"), correlation_id="flow-1")
    assert not (await road.trace("flow-1")).truncated
    assert "The flow goes on" not in await shell("trace", "flow-1") + await shell("trace", "flow-1", "--mermaid")
    await road.execute(ProposeTheme("s-1"), correlation_id="flow-1")
    assert (await road.trace("flow-1")).truncated
    assert "The flow goes on" in await shell("trace", "flow-1")
    assert "The flow goes on" in await shell("trace", "flow-1", "--mermaid")
    assert json.loads(await shell("trace", "flow-1", "--json"))["truncated"] is True


# -- on the command line -----------------------------------------------------------------------------------


@pytest.fixture
def shell(road: Postroad):
    async def run(*words: str, code: int = 0) -> str:
        arguments = [*words, "--database-url", road.database_url]
        done = await asyncio.to_thread(CliRunner().invoke, main, arguments, env={"POSTROAD_APP": ""})
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.mark.spec("G5")
@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_the_trace_is_drawn_as_a_tree_a_chart_or_json(road: Postroad, shell) -> None:
    await told(road, "flow-1")
    tree = (await shell("trace", "flow-1")).splitlines()
    assert tree[0] == "flow flow-1"
    assert [kind for kind in WHOLE for line in tree if f"{kind}  " in line] == WHOLE
    assert any("muse: succeeded" in line for line in tree)
    assert all(step.id in "\n".join(tree) for step in await road.trace("flow-1"))
    chart = await shell("trace", "flow-1", "--mermaid")
    assert chart.startswith("flowchart LR\n")
    assert chart.count(" --> ") == len(WHOLE) - 1
    assert [step["type"] for step in json.loads(await shell("trace", "flow-1", "--json"))["steps"]] == WHOLE
    assert "no broken links" in await shell("trace", "--orphans", "--since", "24h")
    await change(road, "UPDATE {commands} SET causation_id = 'gone' WHERE causation_id IS NULL")
    assert "its cause gone is not here" in await shell("trace", "flow-1")
    assert 'missing: its cause gone is not here"]' in await shell("trace", "flow-1", "--mermaid")
    (link,) = json.loads(await shell("trace", "--orphans", "--json"))
    assert link["reason"] == "its cause gone is not here"
    assert "its cause gone is not here" in await shell("trace", "--orphans")
    assert "Give the id of an event" in await shell("trace", code=2)
    assert "no span of time" in await shell("trace", "--orphans", "--since", "yesterday", code=2)


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_commands_are_listed_shown_and_retried(road: Postroad, shell) -> None:
    assert "no commands" in await shell("command", "list")
    async with road.session() as session, session.begin():
        first = (await road.submit(session, ProposeTheme("s-1"))).id
        second = (await road.submit(session, StartSession("s-1"))).id
    await road.command_worker.run_once()
    await road.command_worker.run_once()
    listed = json.loads(await shell("command", "list", "--json"))
    assert [(one["id"], one["status"]) for one in listed] == [(str(second), "COMPLETED"), (str(first), "FAILED")]
    assert str(first) in await shell("command", "list", "--status", "failed")
    assert str(second) not in await shell("command", "list", "--type", "Command.Genesis.Session.Theme.Propose")
    page = await shell("command", "list", "--limit", "1")
    assert f"next page: --after {second}" in page
    assert str(first) in await shell("command", "list", "--limit", "1", "--after", str(second))
    shown = await shell("command", "show", str(first))
    assert "AggregateNotFound: There is no session s-1." in shown
    assert f"Try again: postroad command retry {first}" in shown
    status = await shell("status")
    assert f"Command.Genesis.Session.Theme.Propose {first}, 1 failure" in status
    assert f"postroad command retry {first}" in status
    causes = json.loads(await shell("failures", "--json"))
    assert [(one["where"], one["place"], one["count"]) for one in causes] == [
        ("command", "Command.Genesis.Session.Theme.Propose", 1)
    ]
    assert "Only one that has FAILED can be retried" in await shell("command", "retry", str(second), code=1)
    await shell("command", "retry", str(first), "--reason", "the session is there now")
    await road.command_worker.run_once()
    shown = json.loads(await shell("command", "show", str(first), "--json"))
    assert shown["command"]["status"] == "COMPLETED"
    assert len(shown["events"]) == 1
    assert [(act["action"], act["detail"]) for act in shown["history"]] == [
        ("command.retry", "the session is there now")
    ]
    assert "There is no command" in await shell("command", "show", "0" * 32, code=1)


@pytest.mark.spec("G5")
async def test_an_answer_from_outside_hangs_on_the_event_it_answers(sqlite_url: str, tmp_path: Path) -> None:
    async with genesis(sqlite_url, f"embedded:{tmp_path / 'b.db'}") as road:
        await road.migrate()
        (started,) = await road.execute(StartSession("s-1"), correlation_id="flow-1", user_id="ada")
        (proposed,) = await road.execute(ProposeTheme("s-1"), cause=started, user_id="bob")
        found = await road.trace("flow-1")
    start, asked, propose, answered = found
    assert [asked.id, answered.id] == [str(started.id), str(proposed.id)]
    assert [step.causation_id for step in found] == [None, start.id, asked.id, propose.id]
    assert (found.broken, proposed.message.user_id) == ([], "bob")
