"""Which classes are commands, and which function carries out each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from postroad.errors import ConfigurationError
from postroad.events import EventType, check_class, check_key
from postroad.handlers.handler import Handler, make_handler
from postroad.naming import check_aggregate, check_command, event_of

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_OFFERED: Final = ("state", "version", "session", "message", "road")


@dataclass(frozen=True, slots=True, eq=False)
class CommandHandler:
    handler: Handler
    state: type | None
    """The class that the aggregate's events are folded into, if the handler asks for `state`."""

    @property
    def kind(self) -> EventType:
        return self.handler.event_type


class Commands:
    """The commands of one service."""

    def __init__(self) -> None:
        self._kinds: dict[str, EventType] = {}
        self._handlers: dict[str, CommandHandler] = {}

    def declare(self, name: str, *, aggregate: str, key: str | None) -> Callable[[C], C]:
        check_command(name)
        check_aggregate(aggregate)

        def declare(cls: C) -> C:
            check_class(cls)
            check_key(cls, key)
            if name in self._kinds:
                raise ConfigurationError(
                    f"{name} is declared twice: by {self._kinds[name].cls.__qualname__} and {cls.__qualname__}. "
                    "Give one of them another name."
                )
            self._kinds[name] = EventType(name, "", aggregate, key, 1, None, cls)
            return cls

        return declare

    def handles(self, cls: type, *, state: type | None) -> Callable[[F], F]:
        kind = self.kind_of(cls)

        def register(function: F) -> F:
            handler = make_handler("commands", kind, function, offered=_OFFERED, first="command")
            if known := self._handlers.get(kind.name):
                raise ConfigurationError(
                    f"{kind.name} has two handlers: {known.handler.name} and {handler.name}. Keep one of them."
                )
            _check_state(handler, state)
            self._handlers[kind.name] = CommandHandler(handler, state)
            return function

        return register

    def kind_of(self, command: object) -> EventType:
        cls = command if isinstance(command, type) else type(command)
        for kind in self._kinds.values():
            if kind.cls is cls:
                return kind
        raise ConfigurationError(
            f"{cls.__qualname__} is not declared as a command. "
            'Put @road.command("Command.Shop.Order.Place", aggregate="order", key="order_id") above it.'
        )

    def handler_of(self, name: str) -> CommandHandler:
        if name in self._handlers:
            return self._handlers[name]
        near = get_close_matches(name, self._handlers, n=1)
        cure = f" Did you mean {near[0]}?" if near else ""
        raise ConfigurationError(f"{name} has no handler here.{cure} Put @road.handles(…) above a function.")

    @property
    def handled(self) -> Sequence[str]:
        """The types that can be carried out here."""
        return sorted(self._handlers)

    @property
    def events(self) -> dict[str, str]:
        """From each command's name to that of the event that says it was done."""
        return {name: event_of(name) for name in sorted(self._kinds)}


def _check_state(handler: Handler, state: type | None) -> None:
    if "state" in handler.wants and state is None:
        raise ConfigurationError(
            f"{handler.name} asks for `state`, but of which class? Write @road.handles(…, state=Session)."
        )
    if state is not None and not callable(getattr(state, "evolve", None)):
        raise ConfigurationError(
            f"{state.__qualname__} cannot be an aggregate's state: it has no method evolve(event). Give it one."
        )
