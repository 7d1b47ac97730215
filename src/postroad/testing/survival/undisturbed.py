"""What must hold in the run without any fault. All others are compared with it: its failures would pass for usual."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from postroad.events import declared
from postroad.testing.survival.calls import label
from postroad.testing.survival.commands import COMMANDS, has_failed
from postroad.testing.survival.outcome import takes_argument
from postroad.testing.survival.story import advised
from postroad.testing.survival.verdict import Place, Played

_NO_EVENT: Final = "The scenario committed no event, so there is nothing that could be lost."
_WRITE: Final = (
    "Write events through the road that the scenario is given: `async def scenario(road)`, and in it "
    "`async with road.session() as session, session.begin(): road.add(session, …)`."
)


def mistake_in(played: Played, scenario: Callable[..., Any], dead_letters: Collection[str]) -> str:
    """Empty if others can be compared with this run."""
    if mistaken := next((call for call in played.calls if call.mistake), None):
        return f"Without any fault: {mistaken.who} cannot run. {mistaken.mistake}"
    for event_id, why in played.blind.items():
        return f"The commit of {played.name(event_id)} cannot be disturbed, because {why}"
    if not played.written and not played.foreign and not played.commands:
        return _without_events(scenario)
    if played.outcome.value is None:
        return advised(
            "`outcome` returned None, so there is nothing to compare.",
            ["Return what is to be seen in the end: outcome=lambda: gateway.charges. A function needs its `return`."],
        )
    return _gave_up(played, dead_letters) or _untaken(played)


def _without_events(scenario: Callable[..., Any]) -> str:
    causes = []
    if not inspect.iscoroutinefunction(scenario):
        causes.append("It is not `async def`.")
    if not takes_argument(scenario):
        causes.append("It takes no `road`: each run has one of its own, with a database of its own.")
    return advised(" ".join([_NO_EVENT, *causes]), [_WRITE])


def _gave_up(played: Played, expected: Collection[str]) -> str:
    dead = _dead_letters(played)
    if meant := [name for name in expected if name not in dead]:
        return advised(
            f"`dead_letters` names {meant[0]}, which did not become one without any fault. "
            f"There {'are' if dead else 'is'}: {', '.join(dead) or 'none'}.",
            ["Leave it out, or write it as `order.placed o-1`: the type of the event and the id of its aggregate."],
        )
    unmeant = {name: told for name, told in dead.items() if name not in expected}
    if not unmeant:
        return ""
    name, told = next(iter(unmeant.items()))
    others = f" So did {', '.join(list(unmeant)[1:])}." if len(unmeant) > 1 else ""
    return advised(
        f"Without any fault, {told}.{others}",
        [
            "Mend what failed: a fault could not be told from it.",
            'If the handler is to say "no", let it raise BusinessError: that settles the event.',
            f"If it is meant to end like this, say so: survives(…, dead_letters=[{name!r}]).",
        ],
    )


def _dead_letters(played: Played) -> Mapping[str, str]:
    """What ended without success and without a "no", by its name; and how that came about."""
    dead = {
        str(one): f"{one} was parked in the outbox: the broker refused it"
        for one in played.written.values()
        if one.parked
    }
    for place, record in played.stopped().items():
        if not record.refused:
            name = played.name(place[1])
            dead[name] = f"{name} became a dead letter in group {place[0]}: {record.error_msg}{_at(played, place)}"
    for command in played.commands.values():
        place = (COMMANDS, command.command_id)
        # The others were executed: whoever did it was told.
        calls = [call for call in played.calls if call.is_for(*place)]
        if calls and has_failed(command) and not calls[-1].refused:
            name = label(command.message)
            dead[name] = f"{name} failed for good: {command.error_message}{_at(played, place)}"
    return dead


def _at(played: Played, place: Place) -> str:
    lines = [call.failed_at for call in played.calls if call.is_for(*place) and call.failed_at]
    return f" ({lines[-1]})" if lines else ""


def _untaken(played: Played) -> str:
    taken = {kind for group in played.registry.groups for kind in played.registry.types(group)}
    written = {one.type: str(one) for one in played.written.values()}
    untaken = written | {message.type: label(message) for message in played.foreign.values()}
    kinds = [kind for kind in untaken if kind not in taken]
    if not kinds:
        return ""
    others = f" Nor {', '.join(kinds[1:])}." if len(kinds) > 1 else ""
    classes = [_class_of(kind) for kind in kinds]
    return advised(
        f"No handler took {kinds[0]} ({untaken[kinds[0]]}), so nobody would notice if it were lost.{others}",
        [
            "Register its handler, or its read model, on the road that `build` returns.",
            "If another service takes it, let a handler stand for that one. In `build`: "
            + " ".join(f'road.on({name}, group="elsewhere")(lambda event: None)' for name in classes),
        ],
    )


def _class_of(kind: str) -> str:
    return next((known.cls.__name__ for known in declared(kind).values()), "TheEvent")
