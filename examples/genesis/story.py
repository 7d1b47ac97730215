"""Stages, drafts, and every command and event of a session by name.

Command.Genesis.Session.Start           → Genesis.Session.Started
Command.Genesis.Session.Theme.Request   → Genesis.Session.Theme.Requested     and so on for World, Character, Plot
Command.Genesis.Session.Theme.Propose   → Genesis.Session.Theme.Proposed
Command.Genesis.Session.Theme.Confirm   → Genesis.Session.Theme.Confirmed
Command.Genesis.Session.Theme.Reject    → Genesis.Session.Theme.Rejected, and Requested once more
Command.Genesis.Session.Finish          → Genesis.Session.Finished

A capability answers a Requested with an event of its own: Outliner.Theme.Generated.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from postroad import Postroad, event

AGGREGATE: Final = "session"
TOPIC: Final = "genesis.session.events"
LONGEST: Final = 200


class Stage(StrEnum):
    THEME = "Theme"
    WORLD = "World"
    CHARACTER = "Character"
    PLOT = "Plot"

    @property
    def next(self) -> "Stage | None":
        stages = list(Stage)
        return stages[stages.index(self) + 1] if self is not stages[-1] else None


CAPABILITIES: Final[Mapping[Stage, tuple[str, str]]] = {
    Stage.THEME: ("outliner", "Outliner.Theme.Generated"),
    Stage.WORLD: ("worldbuilder", "Worldbuilder.World.Generated"),
    Stage.CHARACTER: ("character", "Character.Profile.Generated"),
    Stage.PLOT: ("outliner", "Outliner.Plot.Generated"),
}
"""Who works on a stage, and the name of the answer."""


class Draft(msgspec.Struct, frozen=True):
    title: str
    text: str


class About(msgspec.Struct, frozen=True):
    """Whatever is about one session."""

    session_id: str


class AboutStage(About, frozen=True):
    stage: ClassVar[Stage]


class AboutRound(AboutStage, frozen=True):
    round: int
    """1 for the first draft of a stage, and one more each time the author wants another."""


# -- commands ------------------------------------------------------------------------------------------


class Start(About, frozen=True):
    title: str
    idea: str = ""

    def validate(self) -> None:
        _check("title", self.title, least=1)
        _check("idea", self.idea)


class Request(AboutStage, frozen=True):
    pass


class Propose(AboutRound, frozen=True):
    draft: Draft


class Confirm(AboutRound, frozen=True):
    """The round says which draft the author has seen: a click must not take one that came meanwhile."""


class Reject(AboutRound, frozen=True):
    wish: str = ""

    def validate(self) -> None:
        _check("wish", self.wish)


class Finish(About, frozen=True):
    pass


# -- events --------------------------------------------------------------------------------------------


class Started(About, frozen=True):
    title: str
    idea: str


class Requested(AboutRound, frozen=True):
    """With all that a capability needs to know: it asks nobody."""

    idea: str
    wish: str
    chosen: dict[str, Draft]
    """By stage."""


class Proposed(AboutRound, frozen=True):
    draft: Draft


class Confirmed(AboutRound, frozen=True):
    draft: Draft


class Rejected(AboutRound, frozen=True):
    wish: str


class Finished(About, frozen=True):
    pass


class Generated(AboutRound, frozen=True):
    """A capability's answer."""

    draft: Draft


S = TypeVar("S", bound=AboutStage)


def _for_each_stage(base: type[S]) -> dict[Stage, type[S]]:
    """A class for each stage, because each has a name of its own on the wire: ThemeRequested, WorldRequested, …"""
    return {stage: _for_stage(base, stage) for stage in Stage}


def _for_stage(base: type[S], stage: Stage) -> type[S]:
    name = f"{stage}{base.__name__}"
    made: Any = msgspec.defstruct(name, [], bases=(base,), namespace={"stage": stage}, module=__name__, frozen=True)
    return made  # type: ignore[no-any-return]


def _declared(base: type[S]) -> dict[Stage, type[S]]:
    made = _for_each_stage(base)
    for stage, cls in made.items():
        event(f"Genesis.Session.{stage}.{base.__name__}", topic=TOPIC, aggregate=AGGREGATE, key="session_id")(cls)
    return made


REQUEST, PROPOSE = _for_each_stage(Request), _for_each_stage(Propose)
CONFIRM, REJECT = _for_each_stage(Confirm), _for_each_stage(Reject)
REQUESTED, PROPOSED = _declared(Requested), _declared(Proposed)
CONFIRMED, REJECTED = _declared(Confirmed), _declared(Rejected)
GENERATED: Final = _for_each_stage(Generated)

event("Genesis.Session.Started", topic=TOPIC, aggregate=AGGREGATE, key="session_id")(Started)
event("Genesis.Session.Finished", topic=TOPIC, aggregate=AGGREGATE, key="session_id")(Finished)
for _stage, (_capability, _name) in CAPABILITIES.items():
    event(_name, topic=f"{_capability}.events", aggregate=_capability, key="session_id")(GENERATED[_stage])


def declare_commands(road: Postroad) -> list[type[About]]:
    named: dict[str, type[About]] = {"Start": Start, "Finish": Finish}
    for stage in Stage:
        named[f"{stage}.Request"], named[f"{stage}.Propose"] = REQUEST[stage], PROPOSE[stage]
        named[f"{stage}.Confirm"], named[f"{stage}.Reject"] = CONFIRM[stage], REJECT[stage]
    for name, cls in named.items():
        road.command(f"Command.Genesis.Session.{name}", aggregate=AGGREGATE, key="session_id")(cls)
    return list(named.values())


def _check(field: str, text: str, least: int = 0) -> None:
    if not least <= len(text.strip()) or len(text) > LONGEST:
        raise ValueError(f"field {field}: must have {least} to {LONGEST} characters. Change it.")
