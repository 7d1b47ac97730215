"""The real code on virtual time: no promise is broken, a seed repeats itself, and planted bugs are found."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest

from postroad.brokers.base import Confirmed, Outcome
from postroad.brokers.rabbitmq.confirms import Confirms
from postroad.commands import CommandBox, Executor
from postroad.commands.box import Held
from postroad.consistency.repair import _Repair
from postroad.consistency.window import ranges
from postroad.eventstore import EventStore
from postroad.inbox import Inbox, inbox
from postroad.inbox.transaction import handling
from postroad.projections import state
from postroad.relay.breaker import Breaker
from postroad.relay.carrier import Carrier
from postroad.retry import Backoff, Decision, decide
from postroad.subscriber import handling as subscriber
from postroad.subscriber.handling import Handling
from proof.simulator import coverage, runs, seeds
from proof.simulator.faults import KINDS
from proof.simulator.runs import Simulator, simulator
from proof.simulator.scene import Scene
from proof.simulator.shrink import shrink
from proof.simulator.world import Outcome as RunOutcome
from proof.simulator.world import World
from tests.support.components import address

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("POSTROAD_SIMULATOR_SEEDS", "5000"))


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proof.simulator", *map(str, arguments)]
    return started(command, **variables)


def started(command: Sequence[str], *, first: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(folder) for folder in (first, ROOT / "src", ROOT) if folder)
    environment = os.environ | variables | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_no_seed_breaks_a_promise(tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    # Time is virtual here, so it may wait for whoever lives by the clock: the chaos runs beside it.
    patiently = ["nice", "-n", "19", sys.executable, "-m", "proof.simulator"]
    done = started([*patiently, "--seeds", str(SEEDS), "--json", str(figures_file)])
    assert done.returncode == 0, done.stdout
    figures = json.loads(figures_file.read_text())
    assert figures["seeds"] == SEEDS
    assert figures["fewest faults of a seed"] >= 50
    assert set(figures["by kind"]) == KINDS
    assert len(KINDS) == 27
    assert figures["longest run of a key"] >= 12
    assert figures["seeds with a run of 12 or more"] >= SEEDS / 20
    assert figures["seconds of the processor"] > 0


@pytest.mark.timeout(600)
def test_on_postgresql_no_seed_breaks_a_promise_either(tmp_path: Path) -> None:
    server = {"POSTROAD_TEST_POSTGRESQL_URL": address("postgresql")}
    done = run("--store", "postgresql", "--seeds", 6, "--jobs", 1, "--json", tmp_path / "figures.json", **server)
    assert done.returncode == 0, done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["fewest faults of a seed"] >= 50


def test_on_postgresql_too_the_same_seed_is_the_same_story() -> None:
    server = {"POSTROAD_TEST_POSTGRESQL_URL": address("postgresql")}
    first, second = (run("--store", "postgresql", "--seed", 5, "--trace", **server) for _ in range(2))
    assert first.returncode == 0
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    "seed", [7, 8, 25, 9], ids=["embedded broker", "RabbitMQ", "commands and a rebuild", "commands and a repair"]
)
def test_the_same_seed_is_the_same_story_byte_for_byte(seed: int) -> None:
    first, second = (run("--seed", seed, "--trace") for _ in range(2))
    assert first.returncode == 0
    assert first.stdout.count("\n") > 300
    assert ("publish sim.booking.events" in first.stdout) == (seed == 8)
    assert ("command_complete" in first.stdout) == (seed in (25, 9))
    assert ("repair_outbox_row" in first.stdout) == (seed == 9)
    assert ("projection_begin" in first.stdout) == (seed == 25)
    assert first.stdout == second.stdout


@pytest.mark.timeout(600)
def test_processes_are_killed_before_and_after_every_await_commit_and_statement() -> None:
    done = run("--crash-points", "--seeds", 80)
    assert done.returncode == 0, done.stdout
    told = re.search(r"^(\d+) of (\d+) crash points tried, 0 promises broken$", done.stdout, re.MULTILINE)
    assert told is not None, done.stdout
    assert f"\n{len(coverage.excluded())} places left out, see above" in done.stdout
    tried, wanted = map(int, told.groups())
    assert tried == wanted >= 2 * (len(coverage.sites()) + len(coverage.commits()) + len(coverage.statements())) >= 480
    waits = set(re.findall(r"^killed while it waits: \S+ in (\w+)$", done.stdout, re.MULTILINE))
    assert {"wait_after", "_landed", "_beat"} <= waits
    # These lead outside: to have waited there for something else is not enough.
    assert not waits & {"mark", "keep", "release", "_first_attempt", "_subscribe", "prepare", "read_due", "attempt"}


def test_each_commit_is_wanted_by_itself() -> None:
    missing = {(kill.where.file, kill.where.function) for kill in coverage.Coverage().missing() if kill.at_commit}
    assert len(coverage.commits()) == 16
    assert missing == {
        *(("relay/carrier.py", name) for name in ("mark", "park")),
        *(("relay/leases.py", name) for name in ("keep", "release", "_renew_all")),
        *(("relay/pruner.py", name) for name in ("run_once", "_remove")),
        *(("inbox/inbox.py", name) for name in ("try_acquire", "mark_failed", "attempt")),
        *(("inbox/records.py", name) for name in ("prune", "declare", "_change")),
        ("inbox/keeper.py", "renew"),
        ("subscriber/handling.py", "_first_attempt"),
    }


def test_a_kill_at_the_beginning_of_a_transaction_is_none_at_its_commit(quiet: None) -> None:
    found = coverage.Coverage()
    with simulator() as one:
        assert one.run(0, coverage=found).violations == []
    # The transaction itself, and an await beneath which one begins and ends.
    for file, function in (("relay/leases.py", "keep"), ("subscriber/intake.py", "prepare")):
        site = min(site for site in coverage.sites() if (site.file, site.function) == (file, function))
        at_commit = {coverage.Kill(site, phase, at_commit=True) for phase in ("before", "after")}
        assert at_commit <= found.killed
        found.killed -= at_commit
        assert {coverage.Kill(site, "before"), coverage.Kill(site, "after")} <= found.killed
        assert at_commit <= set(found.missing())
        assert f"before the COMMIT of {site}" in map(str, found.missing())


def test_statements_are_wanted_though_nobody_was_seen_to_run_them() -> None:
    missing = {(str(kill.where), kill.phase) for kill in coverage.Coverage().missing()}
    for statement in ("mark_sent", "lease_take", "read_due", "inbox_claim", "inbox_fail_first", "prune_sent"):
        assert {(statement, "before"), (statement, "after")} <= missing


def test_whatever_is_left_out_of_the_crash_points_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert coverage.stale() == []
    monkeypatch.setitem(coverage.UNREACHABLE, ("relay/relay.py", "await nobody()"), "gone")
    monkeypatch.setitem(coverage.NEVER_RUN, "no_statement", "gone")
    assert coverage.stale() == [("relay/relay.py", "await nobody()"), "no_statement"]


FIGURES = """
import json
from proof.simulator.scene import Scene
from proof.simulator.seeds import run_chunk
from proof.simulator.runs import simulator

def told(outcome):
    print(json.dumps([outcome.seed, outcome.faults, outcome.keys, outcome.sent, outcome.seconds, outcome.drawn]))
"""
TOGETHER = "for outcome in run_chunk(Scene(), range(26)): told(outcome)"
ALONE = "with simulator() as one: told(one.run({seed}, tracing=True))"


def figures(code: str) -> dict[int, list[Any]]:
    done = started([sys.executable, "-W", "ignore", "-c", FIGURES + code], PYTHONHASHSEED="0")
    assert done.returncode == 0, done.stderr
    return {seed: rest for seed, *rest in map(json.loads, done.stdout.splitlines())}


def test_a_seed_is_the_same_alone_and_told_step_by_step_as_among_others() -> None:
    together = figures(TOGETHER)
    assert len(together) == 26
    for seed in (7, 8, 25):  # on the embedded broker; on RabbitMQ; with commands and a rebuild
        assert figures(ALONE.format(seed=seed)) == {seed: together[seed]}


# --- it finds what is wrong ---------------------------------------------------------------------------


@pytest.fixture
def one(quiet: None) -> Iterator[Simulator]:
    with simulator() as one:
        yield one


def first_violation(one: Simulator, kind: str, seeds: range = range(80)) -> Any:
    outcomes = (one.run(seed) for seed in seeds)
    return next((outcome for outcome in outcomes if any(told.startswith(kind) for told in outcome.violations)), None)


async def believe_every_send(self: Carrier, runs: Sequence[Any]) -> list[Sequence[Outcome]]:
    """Marks what was not confirmed."""
    await self._broker.send([due.message for run in runs for due in run])
    return [[Confirmed()] * len(run) for run in runs]


async def forget_what_was_handled(self: Inbox, connection: object, group: str, messages: Sequence[object]) -> bool:
    return True


async def give_up_on_verdicts(self: Handling, give: Any) -> None:
    try:
        await give()
    except Exception:
        pass


send_as_it_is = Carrier._send


async def turn_a_long_run_round(self: Carrier, runs: Sequence[Any]) -> list[Sequence[Outcome]]:
    """What goes wrong only where there is much of a key."""
    return await send_as_it_is(self, [run[::-1] if len(run) > 5 else run for run in runs])


def take_every_answer_for_a_yes(self: Confirms, frame: Any) -> None:
    """Also that RabbitMQ did not take a message, or returned it."""
    for number in self._meant(frame.method.delivery_tag, frame.method.multiple):
        self._pending.pop(number).answer(Confirmed())


def bury_at_the_first_failure(error: Exception, failed: int, backoff: object) -> Decision:
    return decide(error, failed, Backoff(attempts=1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("owner", "name", "bug", "expected"),
    [
        (Carrier, "_send", believe_every_send, "lost"),
        (Carrier, "_send", turn_a_long_run_round, "out of order"),
        (Inbox, "claim", forget_what_was_handled, "doubled"),
        (Handling, "_settle", give_up_on_verdicts, "lost"),
        (Breaker, "allows", lambda self, topic: False, "lost"),
        (Confirms, "_on_confirm", take_every_answer_for_a_yes, "lost"),
        (subscriber, "decide", bury_at_the_first_failure, "lost"),
        (inbox, "decide", bury_at_the_first_failure, "lost: "),
    ],
    ids=[
        "marks without confirmation",
        "long runs the wrong way round",
        "no inbox",
        "verdicts given once",
        "nothing is ever sent",
        "no is yes",
        "no second attempt",
        "no second attempt by the bus",
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, one: Simulator, owner: Any, name: str, bug: Any, expected: str
) -> None:
    monkeypatch.setattr(owner, name, bug)
    # The bus is used in every sixteenth, and its handlers seldom get so far in a storm.
    seeds = range(0, 1_600, 16) if owner is inbox else range(80)
    assert first_violation(one, expected, seeds) is not None


class NotYet:
    """A box that leaves completing to somebody else."""

    def __init__(self, box: CommandBox) -> None:
        self.box = box

    def __getattr__(self, name: str) -> Any:
        return getattr(self.box, name)

    async def complete(self, connection: object, held: Held) -> None:
        return None


async def complete_afterwards(self: Executor, held: Held) -> Any:
    """In a transaction apart from the events."""
    box, self.box = self.box, NotYet(self.box)  # type: ignore[assignment]
    try:
        async with handling(box.store) as (session, _):
            done = await self._work(session, held)
    finally:
        self.box = box
    async with box.store.transaction() as connection:
        await box.complete(connection, held)
    return done


open_as_it_is, append_as_it_is = CommandBox.open, EventStore.append


async def open_what_is_done(self: CommandBox, connection: Any, message: Any) -> Any:
    found = await open_as_it_is(self, connection, message)
    return found if isinstance(found, Held) else await self.take(found, connection)


async def take_silence_for_success(self: Executor, held: Held) -> bool:
    return True


async def append_upon_anything(self: EventStore, target: Any, events: Any, expected: object = None) -> Any:
    return await append_as_it_is(self, target, events)


async def note_nothing(*_: object) -> None:
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("owner", "name", "bug", "expected"),
    [
        (Executor, "_once", complete_afterwards, "doubled"),
        (CommandBox, "open", open_what_is_done, "doubled"),
        (Executor, "_is_completed", take_silence_for_success, "lost"),
        (EventStore, "append", append_upon_anything, "out of order"),
        (state, "note", note_nothing, "refused"),
    ],
    ids=["completed apart", "the box is ignored", "silence is success", "stale state", "no journal"],
)
def test_a_bug_planted_in_commands_or_read_models_is_found(
    monkeypatch: pytest.MonkeyPatch, one: Simulator, owner: Any, name: str, bug: Any, expected: str
) -> None:
    monkeypatch.setattr(owner, name, bug)
    assert first_violation(one, expected, range(1, 800, 8)) is not None


async def repair_nothing(self: Any) -> None:
    return None


add_row_as_it_is = _Repair._add_row


async def add_under_another_id(self: Any, connection: Any, outbox: Any, row: Any) -> None:
    values = row._asdict() | {"event_id": self.store.id_in(uuid5(NAMESPACE_OID, str(row.event_id)))}
    await add_row_as_it_is(self, connection, outbox, SimpleNamespace(**values))


async def run_again_what_left_another_event(self: Any) -> None:
    for piece in ranges(await self.look.commands_span()):
        async for rows in self.look.orphaned(piece, self.look.window.since):
            for row in rows:
                await self._act("orphaned_command", "repair.command", str(row.id), "", command_id=UUID(str(row.id)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("name", "bug", "expected"),
    [
        ("missing_outbox", repair_nothing, "lost"),
        ("_add_row", add_under_another_id, "phantom"),
        ("orphaned_commands", run_again_what_left_another_event, "doubled"),
    ],
    ids=["nothing", "another id", "what took effect runs again"],
)
def test_a_bug_planted_in_the_repair_is_found(
    monkeypatch: pytest.MonkeyPatch, one: Simulator, name: str, bug: Any, expected: str
) -> None:
    monkeypatch.setattr(_Repair, name, bug)
    assert first_violation(one, expected, range(9, 480, 24)) is not None


@pytest.mark.filterwarnings("ignore")
def test_a_failing_seed_is_cut_down_to_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch, one: Simulator) -> None:
    monkeypatch.setattr(Carrier, "_send", believe_every_send)
    failed = first_violation(one, "lost")
    kept = shrink(one, failed)
    assert len(kept) < failed.drawn / 2
    assert one.run(failed.seed, only=kept).violations
    for needed in kept:
        assert not one.run(failed.seed, only=[fault for fault in kept if fault != needed]).violations


def test_what_is_needed_only_because_of_another_goes_with_it() -> None:
    def run(seed: int, only: Sequence[int]) -> RunOutcome:
        fails = 1 in only and (2 not in only or 3 in only)
        return RunOutcome(seed, ["lost"] if fails else [])

    simulated: Any = SimpleNamespace(run=run)
    assert shrink(simulated, RunOutcome(7, ["lost"], drawn=3)) == [1]


# --- a failure of another kind has its seed, too --------------------------------------------------------


def test_an_error_that_nobody_foresaw_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch, one: Simulator) -> None:
    async def stumble(self: World) -> None:
        raise LookupError("nobody foresaw this")

    monkeypatch.setattr(World, "_storm", stumble)
    outcome = one.run(3)
    assert outcome.seed == 3
    assert outcome.violations[0].startswith("broke off: Traceback")
    assert outcome.violations[0].endswith("LookupError: nobody foresaw this")


@pytest.mark.filterwarnings("ignore")
def test_a_seed_that_goes_round_in_circles_is_stopped(monkeypatch: pytest.MonkeyPatch, one: Simulator) -> None:
    def for_ever(self: Breaker, topic: str) -> bool:
        while True:
            pass

    monkeypatch.setattr(runs, "LONGEST_SEED", 0.3)
    monkeypatch.setattr(Breaker, "allows", for_ever)
    assert "no end within 0.3 seconds" in one.run(3).violations[0]


def test_a_seed_whose_process_died_is_named(monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    run_as_it_is, here = World.run, os.getpid()

    def die_of_three(self: World) -> RunOutcome:
        if self.seed == 3 and os.getpid() != here:
            os._exit(1)
        return run_as_it_is(self)

    monkeypatch.setattr(World, "run", die_of_three)
    monkeypatch.setattr(seeds, "_LONGEST_CHUNK", 3.0)
    (*others, died) = seeds._outcomes(Scene(), range(4), jobs=2)
    assert [outcome.seed for outcome in others] == [0, 1]
    assert died.seed == 3
    assert "process has died" in died.violations[0]


PLANTED = """
from postroad.brokers.base import Confirmed
from postroad.relay.carrier import Carrier

async def believe_every_send(self, runs):
    await self._broker.send([due.message for run in runs for due in run])
    return [[Confirmed()] * len(run) for run in runs]

Carrier._send = believe_every_send
"""


def failing_and_again(folder: Path, *arguments: str) -> tuple[str, str, subprocess.CompletedProcess[str]]:
    """With a planted bug: what is printed, the command in it, and what that prints."""
    (folder / "sitecustomize.py").write_text(PLANTED, encoding="utf-8")
    failed = started([sys.executable, "-m", "proof.simulator", *arguments], first=folder)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    (command,) = re.findall(r"^Again: (python -m proof\.simulator .*)", failed.stdout, re.MULTILINE)
    return failed.stdout, command, started([sys.executable, *shlex.split(command)[1:]], first=folder)


def test_the_command_that_is_printed_for_a_failing_seed_repeats_it(tmp_path: Path) -> None:
    told, command, repeated = failing_and_again(tmp_path, "--first", "4", "--seeds", "1", "--jobs", "1")
    (violation,) = re.findall(r"^seed 4: lost: .*", told, re.MULTILINE)[:1]
    kept = command.partition("--only ")[2].split()
    steps = re.findall(r"^ +\d+\.\d{3}  .*✗.*", told, re.MULTILINE)
    assert steps
    assert len(kept) < 10
    assert repeated.returncode == 1
    assert violation in repeated.stdout
    assert set(steps) <= set(repeated.stdout.splitlines())
    assert started([sys.executable, *shlex.split(command)[1:]]).returncode == 0


def test_a_promise_that_is_broken_at_a_crash_point_is_told_and_repeated_too(tmp_path: Path) -> None:
    told, command, repeated = failing_and_again(tmp_path, "--crash-points", "--first", "3", "--seeds", "20")
    assert "--crash-points --first 3" in command
    assert re.search(r"^ +\d+\.\d{3}  .*was killed", told, re.MULTILINE)
    assert repeated.stdout == told
