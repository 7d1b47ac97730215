"""The same scenario over and over: undisturbed, then with each fault in turn."""

import asyncio
import inspect
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from postroad.app import Postroad
from postroad.errors import ConfigurationError
from postroad.retry import describe
from postroad.stores import open_store
from postroad.testing.survival import database, faults, story
from postroad.testing.survival.arguments import check_dead_letters, check_functions, check_workers
from postroad.testing.survival.blame import blame, blame_scenario, forgotten
from postroad.testing.survival.calls import mistake_of
from postroad.testing.survival.commits import CommitWatch
from postroad.testing.survival.faults import Crash, Fault
from postroad.testing.survival.outcome import UNSEEN, Outcome, look, takes_argument
from postroad.testing.survival.patience import Beside, HungError, Patience
from postroad.testing.survival.run import OF_SCENARIO, SCENARIO, Run
from postroad.testing.survival.undisturbed import mistake_in
from postroad.testing.survival.verdict import Finding, Played, judge
from postroad.testing.survival.whose import place_of

Build = Postroad | Callable[..., Postroad]


_ONE_WRITER: Final = (
    "Two workers at once were not tried: SQLite has one writer at a time, so they cannot meet. Give `survives` a "
    "`database_url` of PostgreSQL or MySQL for that."
)

_NO_END: Final = (
    "Does it wait for what never comes? Give its waiting an end, such as `asyncio.timeout(…)`. Does it sleep? Let it "
    "not: it is called again in each run."
)


class DidNotSurvive(AssertionError):
    """Its text is the whole story."""


@dataclass(frozen=True, slots=True)
class Survived:
    tried: Sequence[Fault]
    untried: str = ""
    """What was asked for and cannot happen here, and what to do about it."""

    def __str__(self) -> str:
        return f"{faults.counted(self.tried)}. {self.untried}" if self.untried else faults.counted(self.tried)


@dataclass
class Survival:
    build: Build
    scenario: Callable[..., Any]
    outcome: Callable[..., Any]
    folder: Path
    setup: Callable[..., Any] | None = None
    database_url: str | None = None
    workers: int = 1
    dead_letters: Collection[str] = ()
    """What becomes one without any fault too, and is meant to: `order.placed o-1`."""
    only: str = ""
    rerun: str = ""
    """The command that repeats one fault, which is put behind it."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The time in every run, so that ids and stamps are the same in all of them."""
    now: Callable[[], float] = time.monotonic
    """The clock by which patience is lost."""
    _played_before: dict[str, Played] = field(default_factory=dict, init=False)
    _playing: Fault | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_functions(build=self.build, scenario=self.scenario, outcome=self.outcome, setup=self.setup or _nothing)
        check_workers(self.workers)
        check_dead_letters(self.dead_letters)
        self.patience = Patience(self.now)

    def run(self) -> Survived:
        """In a thread and an event loop of its own. Raises DidNotSurvive."""
        self.patience.moved()
        try:
            with _silence():
                survived: Survived = Beside(self._run).result(self.patience)
                return survived
        except HungError as hung:
            told = str(hung)
        raise DidNotSurvive(self._told_of_hanging(told))

    async def _run(self) -> Survived:
        asyncio.get_running_loop().set_exception_handler(_ignore_crashes)
        self._played_before.clear()
        usual = await self._undisturbed()
        untried = _ONE_WRITER if self.workers > 1 and not usual.points.get("pair") else ""
        chosen = faults.choose(faults.enumerate_faults(usual.points), self.only, untried)
        broken: list[tuple[Played, Sequence[Finding]]] = []
        for fault in chosen:
            played = await self._once(fault)
            if findings := [*judge(played, usual), *await self._judge_outcome(played, usual)]:
                broken.append((played, findings))
        if broken:
            raise DidNotSurvive(self._report(broken, chosen, untried))
        return Survived(chosen, untried)

    async def _once(self, fault: Fault) -> Played:
        if str(fault) not in self._played_before:
            self._played_before[str(fault)] = await self.play(fault)
        return self._played_before[str(fault)]

    async def _judge_outcome(self, played: Played, usual: Played) -> list[Finding]:
        if not played.cut:
            if played.failure:
                return []
            if lost := forgotten(played, usual):
                return [lost]
            return [] if played.outcome == usual.outcome else [blame(played, usual)]
        expected = await self._expected_of_cut(played, usual)
        if UNSEEN in (expected, played.outcome) or expected == played.outcome:
            return []
        return [blame_scenario(expected)]

    async def _expected_of_cut(self, played: Played, usual: Played) -> Outcome:
        """What a scenario that dies before a commit must leave: as much as if it had stopped after the last one."""
        fault = played.fault
        if fault is None or (fault.kind, fault.where) != ("commit-before", OF_SCENARIO):
            return UNSEEN
        before = [n for n, where in enumerate(usual.points["commit"], 1) if where == OF_SCENARIO and n < fault.number]
        if before:
            return (await self._once(Fault("commit-after", before[-1], OF_SCENARIO))).outcome
        return (await self.play(None, nothing=True)).outcome

    async def _undisturbed(self) -> Played:
        first = await self.play(None)
        if mistake := mistake_in(first, self.scenario, self.dead_letters):
            raise DidNotSurvive(mistake)
        usual = await self.play(None)
        if first.before != usual.before:
            raise DidNotSurvive(
                "Before anything had happened, `outcome` showed something else in the second run than in the first.\n\n"
                f"Before the first:\n    {first.before}\nBefore the second:\n    {usual.before}\n\n"
                "Either something outlived the first run: the database is fresh for each, Python's memory is not (a "
                "list in a fake, say). Make it anew, or clear it, in `build` or in `setup`: both are called for each "
                "run.\nOr `outcome` shows what changes by itself (a time, a random number). Leave that out."
            )
        if first.outcome != usual.outcome:
            raise DidNotSurvive(
                "Two runs without any fault ended differently, so no fault could be told from chance.\n\n"
                f"The first:\n    {first.outcome}\nThe second:\n    {usual.outcome}\n\n"
                "Does `outcome` show something that changes by itself (a time, a generated id)? Leave it out. Does "
                "something outlive a run (a cache)? Make it anew, or clear it, in `build` or in `setup`."
            )
        if findings := judge(usual, usual):
            raise DidNotSurvive("Without any fault: " + story.tell(usual, findings))
        return usual

    def _told_of_hanging(self, told: str) -> str:
        parts = [story.wrapped(told)]
        if self._playing is not None:
            parts[0] = story.wrapped(f"{told} It did without a fault. The fault here: {self._playing.told}")
            parts += self._command(self._playing)
        return "\n\n".join([*parts, story.wrapped(_NO_END)])

    def _command(self, fault: Fault | None) -> list[str]:
        return [f"Rerun only this fault:\n    {self.rerun}{fault}"] if self.rerun else []

    def _report(self, broken: Sequence[tuple[Played, Sequence[Finding]]], chosen: Sequence[Fault], untried: str) -> str:
        (played, findings), *others = broken
        parts = [story.tell(played, findings), *self._command(played.fault)]
        also = f" Also broken by: {', '.join(str(other.fault) for other, _ in others)}." if others else ""
        parts.append(
            story.wrapped(f"{faults.counted(chosen)}; {len(broken)} broke something.{also} {untried}".rstrip())
        )
        return "\n\n".join(parts)

    # -- one run -----------------------------------------------------------------------------------------

    async def play(self, fault: Fault | None, *, nothing: bool = False) -> Played:
        """One run on a fresh database, with one fault or none; nothing is judged. `nothing`: without the scenario."""
        self._playing = fault
        url = self.database_url or self._fresh_file()
        with self.patience.while_works("`build`"):
            road = self._built(url)
        saved = dict(road.__dict__)
        if road is self.build:
            road.store = open_store(url)
        run = Run(road, fault, self.began, self.patience, workers=self.workers)
        try:
            await self._prepare(road)
            run.dress()
            if self.setup:
                with self.patience.while_works("`setup`"):
                    await _call(self.setup, road)
            return await self._played(run, _nothing if nothing else self.scenario)
        finally:
            for process in run.processes:
                process.abandon()
            await Postroad.aclose(road)
            if road is self.build:
                road.__dict__.clear()
                road.__dict__.update(saved)

    async def _played(self, run: Run, scenario: Callable[..., Any]) -> Played:
        failure = ""
        before = UNSEEN if run.fault else await self._seen_before(run)
        run.remember((self.outcome, self.scenario))
        with CommitWatch(run.before_commit, run.after_commit), run.plain:
            await run.start()
            try:
                with run.acting(SCENARIO), self.patience.while_works("The scenario"):
                    await _call(scenario, run.road)
            except Crash:
                pass
            except Exception as error:
                if run.fault is None:
                    _tell_mistake("the scenario", error, run.road)
                    raise
                failure = describe(error)
            if run.cut:
                run.plain.abandon(lambda actor: actor == SCENARIO)
            await run.settle()
        if run.fault and not run.struck:
            raise DidNotSurvive(
                f"{run.fault} was there in the undisturbed run and not in this one, so this scenario is not the same "
                "each time. Take chance and time out of it."
            )
        written = {one.id: one for one in await database.written(run.road.store, run.road.outboxes)}
        return Played(
            fault=run.fault,
            points=run.points,
            struck=run.struck,
            cut=run.cut,
            calls=run.calls,
            log=run.log,
            written=written,
            foreign=run.foreign,
            records=await database.records(run.road.store),
            commands=await database.commands(run.road),
            registry=run.road.registry,
            outcome=await self._seen(run, scenario),
            failure=failure,
            effects=Outcome(await database.effects(run.road.store, run.road.outboxes)),
            blind={id: why for id, why in run.plain.blind.items() if id in written},
            before=before,
        )

    async def _seen_before(self, run: Run) -> Outcome:
        try:
            with self.patience.while_works("`outcome`"):
                return await look(self.outcome, run.road)
        except Exception:
            return UNSEEN  # the scenario may be what makes it visible

    async def _seen(self, run: Run, scenario: Callable[..., Any]) -> Outcome:
        try:
            with self.patience.while_works("`outcome`"):
                return await look(self.outcome, run.road)
        except Exception as error:
            if run.cut or scenario is _nothing:
                return UNSEEN
            _tell_mistake("`outcome`", error, run.road)
            raise

    # -- the service and its database --------------------------------------------------------------------

    def _built(self, url: str) -> Postroad:
        if isinstance(self.build, Postroad):
            return self.build
        built = self.build(url) if takes_argument(self.build) else self.build()
        if inspect.iscoroutine(built):
            built.close()  # not begun, and never will be
            raise ConfigurationError("`build` must not be async: it only makes the road. Connect in `setup`.")
        if not isinstance(built, Postroad):
            raise ConfigurationError(f"build returned {built!r}. It must return a Postroad, with its handlers.")
        return built

    async def _prepare(self, road: Postroad) -> None:
        if not self._is_ours(road):
            await database.empty(road.store, road.outboxes)
            await road.migrate()
            return
        database.hurry(road.store)
        if not self._template.exists():
            await road.migrate()
            with sqlite3.connect(self._file) as source, sqlite3.connect(self._template) as target:
                source.backup(target)
            source.close()
            target.close()

    def _is_ours(self, road: Postroad) -> bool:
        return road.store.url.database == str(self._file)

    @property
    def _file(self) -> Path:
        return self.folder / "survives.db"

    @property
    def _template(self) -> Path:
        return self.folder / "survives-migrated.db"

    def _fresh_file(self) -> str:
        """A file with Postroad's tables and nothing else, once the first run has made them."""
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._file}{ending}").unlink(missing_ok=True)
        if self._template.exists():
            shutil.copyfile(self._template, self._file)
        return f"sqlite:///{self._file}"


async def rows(road: Postroad, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """What a query finds, for `outcome`."""
    return await database.query(road.store, sql, values)


def _nothing() -> None: ...


def _tell_mistake(who: str, error: Exception, road: Postroad) -> None:
    if mistake := mistake_of(error, road):
        place = place_of(error)
        where = f" ({place})" if place else ""
        raise DidNotSurvive(f"Without any fault: {who} cannot run{where}. {mistake}") from None


async def _call(function: Callable[..., Any], road: Postroad) -> None:
    result = function(road) if takes_argument(function) else function()
    if inspect.isawaitable(result):
        await result


@contextmanager
def _silence() -> Iterator[None]:
    """What Postroad logs about faults that were made on purpose is no news, and would bury the story."""
    logger = logging.getLogger("postroad")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _ignore_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)
