"""The handlers of a process, by group and event type."""

from collections.abc import Callable
from typing import Any

from postroad.codec.upcast import choose
from postroad.errors import ConfigurationError
from postroad.events import EventType, event_type_of
from postroad.handlers.handler import Handler, make_handler
from postroad.message import Message


class Registry:
    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], dict[int, Handler]] = {}

    def add(
        self,
        group: str,
        event_type: EventType | type,
        function: Callable[..., Any],
        *,
        batch: int | None = None,
        commit_every: int = 1,
        shares: object = None,
    ) -> Handler:
        """One handler for each group, event type and schema version."""
        kind = event_type if isinstance(event_type, EventType) else event_type_of(event_type)
        handler = make_handler(group, kind, function, batch, commit_every, shares)
        self.put(handler)
        return handler

    def put(self, handler: Handler) -> None:
        kind = handler.event_type
        versions = self._handlers.setdefault((handler.group, kind.name), {})
        if kind.schema_version in versions:
            raise ConfigurationError(
                f"{kind.name} v{kind.schema_version} has two handlers in group {handler.group!r}: "
                f"{versions[kind.schema_version].name} and {handler.name}. Give one another group."
            )
        versions[kind.schema_version] = handler

    def find(self, group: str, message: Message) -> Handler | None:
        """The handler for the message's schema version, else for the next newer one it can be lifted to."""
        versions = self._handlers.get((group, message.type))
        if not versions:
            return None
        known = {version: handler.event_type for version, handler in versions.items()}
        return versions[choose(message.schema_version, known).schema_version]

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted({group for group, _ in self._handlers}))

    def types(self, group: str) -> frozenset[str]:
        return frozenset(type for known, type in self._handlers if known == group)

    def handlers(self, group: str) -> tuple[Handler, ...]:
        return tuple(
            handler
            for (known, _), versions in self._handlers.items()
            if known == group
            for handler in versions.values()
        )

    def topics(self, group: str) -> tuple[str, ...]:
        """The topics from which the group's events come."""
        return tuple(sorted({handler.event_type.topic for handler in self.handlers(group)}))
