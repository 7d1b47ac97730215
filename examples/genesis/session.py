"""What a session may become: `decide` turns a command into events, `evolve` an event into the next state."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from examples.genesis import story
from examples.genesis.refusals import AlreadyStarted, DraftReplaced, OutOfOrder, SessionFinished, SessionNotFound
from examples.genesis.story import Draft, Stage


class Step(StrEnum):
    NEW = "new"
    STARTED = "started"
    REQUESTED = "requested"
    PROPOSED = "proposed"
    CONFIRMED = "confirmed"
    FINISHED = "finished"


class Session(msgspec.Struct, frozen=True):
    title: str = ""
    idea: str = ""
    step: Step = Step.NEW
    stage: Stage | None = None
    """The one that is being worked on, or was confirmed last."""
    round: int = 0
    draft: Draft | None = None
    """What the author is asked about."""
    chosen: dict[str, Draft] = msgspec.field(default_factory=dict)

    @property
    def comes_next(self) -> Stage | None:
        """The stage that may be requested now."""
        if self.step is Step.STARTED:
            return Stage.THEME
        return self.stage.next if self.stage and self.step is Step.CONFIRMED else None

    def decide(self, command: story.About) -> Sequence[object]:
        self._check_open(command)
        id = command.session_id
        match command:
            case story.Start():
                return [story.Started(id, command.title, command.idea)]
            case story.Request():
                self._check(command, self.comes_next is command.stage)
                return [self._request(id, command.stage, 1)]
            case story.Propose():
                self._check_round(command, Step.REQUESTED)
                return [story.PROPOSED[command.stage](id, command.round, command.draft)]
            case story.Confirm():
                self._check_round(command, Step.PROPOSED)
                assert self.draft is not None  # it is proposed
                return [story.CONFIRMED[command.stage](id, command.round, self.draft)]
            case story.Reject():
                self._check_round(command, Step.PROPOSED)
                rejected = story.REJECTED[command.stage](id, command.round, command.wish)
                return [rejected, self._request(id, command.stage, command.round + 1, command.wish)]
            case story.Finish():
                self._check(command, self.stage is Stage.PLOT and self.step is Step.CONFIRMED)
                return [story.Finished(id)]
        raise OutOfOrder(type(command).__name__, "a session does not know it")

    def evolve(self, event: Any) -> "Session":
        to = msgspec.structs.replace
        match event:
            case story.Started():
                return Session(event.title, event.idea, Step.STARTED)
            case story.Requested():
                return to(self, step=Step.REQUESTED, stage=event.stage, round=event.round, draft=None)
            case story.Proposed():
                return to(self, step=Step.PROPOSED, draft=event.draft)
            case story.Confirmed():
                chosen = {**self.chosen, event.stage.value: event.draft}
                return to(self, step=Step.CONFIRMED, draft=None, chosen=chosen)
            case story.Finished():
                return to(self, step=Step.FINISHED, stage=None)
        return self

    def _request(self, id: str, stage: Stage, round: int, wish: str = "") -> story.Requested:
        return story.REQUESTED[stage](id, round, self.idea, wish, self.chosen)

    # -- what is refused -------------------------------------------------------------------------------

    def _check_open(self, command: story.About) -> None:
        if isinstance(command, story.Start):
            if self.step is not Step.NEW:
                raise AlreadyStarted(command.session_id)
        elif self.step is Step.NEW:
            raise SessionNotFound(command.session_id)
        elif self.step is Step.FINISHED:
            raise SessionFinished(command.session_id)

    def _check_round(self, command: story.AboutRound, step: Step) -> None:
        if self.stage is command.stage and self.round != command.round:
            raise DraftReplaced(command.stage, command.round, self.round)
        self._check(command, self.stage is command.stage and self.step is step)

    def _check(self, command: story.About, allowed: bool) -> None:
        if not allowed:
            now = f"the {self.stage} is {self.step}" if self.stage else "the session is just started"
            raise OutOfOrder(type(command).__name__, now)
