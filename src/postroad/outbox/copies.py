"""One fact in several schema versions: several rows, one event.

The newest goes first, and all have the id of one event on the wire: a group handles the first that it can read, and
takes the others for duplicates.
"""

from collections.abc import Sequence

from postroad.errors import ConfigurationError, InvalidPayload
from postroad.events import EventType, aggregate_id_of, event_type_of


def kind_of(event: object) -> EventType:
    if isinstance(event, type):
        event_type_of(event)
        raise ConfigurationError(
            f"`add` was given the class {event.__qualname__}. Give it an event: {event.__qualname__}(…)."
        )
    return event_type_of(event)


def newest_first(events: Sequence[object], version: int | None) -> list[object]:
    """Raises ConfigurationError or InvalidPayload unless they can be one fact."""
    kinds = [kind_of(event) for event in events]
    first = kinds[0]
    if version is not None:
        raise InvalidPayload(
            first.name, "version", "cannot be given together with `also`: each copy takes a version of its own"
        )
    for event, kind in zip(events, kinds, strict=True):
        for name in ("name", "topic", "aggregate", "outbox"):
            if (theirs := getattr(kind, name)) != (ours := getattr(first, name)):
                raise ConfigurationError(
                    f"{first.name}: what stands in `also` must be the same event in another schema version, but "
                    f"{kind.cls.__qualname__} has the {name} {theirs!r} and not {ours!r}. Add it by itself."
                )
        if aggregate_id_of(event, kind) != aggregate_id_of(events[0], first):
            raise InvalidPayload(first.name, f"also.{kind.key}", "is another aggregate's id than the event's own")
    if len({kind.schema_version for kind in kinds}) < len(kinds):
        raise ConfigurationError(f"{first.name}: two of the given events have one schema version. Give each once.")
    return sorted(events, key=lambda event: -event_type_of(event).schema_version)
