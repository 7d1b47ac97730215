"""One process of the user's service: relay, workers and commands, driven step by step so that a run can be repeated."""

from typing import TYPE_CHECKING

from postroad.inbox import RetryScheduler
from postroad.testing.survival.commands import COMMANDS
from postroad.testing.survival.wire import Line

if TYPE_CHECKING:
    from postroad.testing.survival.run import Run


class Process:
    def __init__(self, run: "Run") -> None:
        self._run = run
        runner = run.road.runner()
        self._relays, self._subscribers, self._commands = runner.relays, runner.subscribers, runner.commands
        self._scheduler = RetryScheduler(run.road.inbox, run.road.bus)
        self._lines: dict[str, list[Line]] = {}

    async def start(self) -> None:
        for subscriber in self._subscribers:
            self._lines[subscriber.group] = [
                await self._run.wire.listen(f"{topic}.{subscriber.group}") for topic in subscriber.topics
            ]

    async def step(self) -> bool:
        """One round of everything; whether anything moved. Stops where it died or was taken over."""
        moved = False
        for relay in self._relays:
            self._run.actor = "relay"
            moved |= bool(await relay.run_once())
            if not self._goes_on:
                return True
        for subscriber in self._subscribers:
            self._run.met_group(subscriber.group)
            if subscriber.group == self._run.late_group:
                continue
            self._run.actor = subscriber.group
            for line in self._lines[subscriber.group]:
                if deliveries := await line.poll():
                    await subscriber.handle(deliveries)
                    moved = True
                if not self._goes_on:
                    return True
        if self._commands is not None:
            self._run.actor = COMMANDS
            moved |= bool(await self._commands.run_once())
            if not self._goes_on:
                return True
        if self._run.retries_due:
            # What the in-process bus could not handle is kept in the inbox; nobody else delivers it.
            self._run.retries_due = False
            self._run.actor = "retries"
            moved |= bool(await self._scheduler.run_once())
        return moved

    def abandon(self) -> None:
        """Killed: nothing is released or flushed."""
        for lines in self._lines.values():
            for line in lines:
                line.abandon()

    @property
    def _goes_on(self) -> bool:
        return not self._run.dying and self in self._run.processes
