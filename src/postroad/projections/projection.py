"""A projection as it is declared, and how an event changes it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import Column, Table, UniqueConstraint
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import ConfigurationError, InvalidName, PoisonError
from postroad.events import event_type_of
from postroad.message import Message
from postroad.naming import check_group
from postroad.projections import state
from postroad.projections.fold import Row, change

if TYPE_CHECKING:
    from postroad.app import Postroad
    from postroad.handlers import Registry
    from postroad.projections.sources import Source

F = TypeVar("F", bound=Callable[..., Any])

_BATCH: Final = 200
_LONGEST_NAME: Final = 56
"""Of a table, so that the name of its shadow is not too long."""


class _Delete:
    def __repr__(self) -> str:
        return "DELETE"


DELETE: Final = _Delete()
"""What a projection's function returns for an event after which the row is gone."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one event class means for the row."""

    function: Callable[..., Any]
    delta: bool
    wants: frozenset[str]


class Projection:
    def __init__(
        self,
        name: str,
        table: Table,
        *,
        group: str,
        key: str | None = None,
        version: str = "version",
        deleted: str | None = None,
        source: "Source | None" = None,
        registry: "Registry",
    ) -> None:
        self.name, self.table, self.group, self.source = _check_name(name), table, group, source
        self.key = key or _only_key(table)
        self.version, self.deleted = version, deleted
        self._registry = registry
        self._rules: dict[type, Rule] = {}
        self.aggregate = ""
        self._check()

    def __str__(self) -> str:
        return f"read model {self.name}"

    # -- declaring -----------------------------------------------------------------------------------

    def on(self, event_class: type, *, delta: bool = False) -> Callable[[F], F]:
        """Register what an event class does to the row of its aggregate.

        The function takes the event, and may ask for `message`. It returns the whole row as a dict, without key and
        version: columns that it leaves out become NULL. Or DELETE. With `delta` it returns only what changes, and may
        ask for `row`, the row as it stands.

        It only computes, so that a rebuild can run it again: it is given no session, and cannot be async.
        """
        kind = event_type_of(event_class)

        def register(function: F) -> F:
            if self.aggregate and kind.aggregate != self.aggregate:
                raise ConfigurationError(
                    f"Projection {self.name} follows {self.aggregate!r}, but {kind.name} is about {kind.aggregate!r}. "
                    "Give it a projection of its own: a row has one aggregate's id and version."
                )
            rule = Rule(function, delta, _wants(function, ("message", "row") if delta else ("message",)))
            self._registry.add(self.group, kind, self._handle, batch=_BATCH, shares=self)
            self._rules[event_class], self.aggregate = rule, kind.aggregate
            return function

        return register

    @cached_property
    def columns(self) -> tuple[Column[Any], ...]:
        """Those that the functions fill."""
        own = (self.key, self.version, self.deleted)
        return tuple(c for c in self.table.columns if c.name not in own and c.computed is None)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @cached_property
    def _key_type(self) -> type:
        return self.table.c[self.key].type.python_type

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({event_type_of(cls).topic for cls in self._rules}))

    @property
    def types(self) -> frozenset[str]:
        """Of the events that change a row."""
        return frozenset(event_type_of(cls).name for cls in self._rules)

    # -- what an event does --------------------------------------------------------------------------

    async def _handle(
        self, events: Sequence[object], messages: Sequence[Message], session: AsyncSession, road: "Postroad"
    ) -> None:
        """In the transaction of the inbox rows: both are there afterwards, or neither."""
        connection = await session.connection()
        rebuilding = await state.fence(road.store, connection, self.name)
        await change(self, self.table, road.store, connection, list(zip(events, messages, strict=True)))
        if rebuilding:
            # Last, so that of two changes of one row the later one has the higher position.
            await state.note(road.store, connection, self.name, messages)

    def as_key(self, aggregate_id: str) -> Any:
        return aggregate_id if self._key_type is str else self._key_type(aggregate_id)

    def key_of(self, message: Message) -> Any:
        try:
            return self.as_key(message.aggregate_id)
        except ValueError:
            raise PoisonError(
                f"{self.name}: the aggregate's id {message.aggregate_id!r} does not fit the key column {self.key}. "
                "Make it a text column, or mend the writer."
            ) from None

    def is_delta(self, event: object) -> bool:
        return self._rules[type(event)].delta

    def row(self, event: object, message: Message, before: Row | None = None) -> Row:
        """The row after the event. `before`: the one right before it, for a delta."""
        assert message.version is not None  # the fold has looked
        rule = self._rules[type(event)]
        if rule.delta and before is not None and before.deleted:
            return Row(before.key, message.version, {}, deleted=True)
        offered = {"message": message, "row": dict(before.values) if before else {}}
        found = rule.function(event, **{name: offered[name] for name in rule.wants})
        key = self.key_of(message)
        if found is DELETE:
            self._check_can_delete()
            return Row(key, message.version, {}, deleted=True)
        values = self._checked(rule, found, key)
        return Row(key, message.version, {**(before.values if before else {}), **values} if rule.delta else values)

    def _checked(self, rule: Rule, found: object, key: object) -> Mapping[str, Any]:
        name = getattr(rule.function, "__qualname__", "") or repr(rule.function)
        if not isinstance(found, Mapping):
            raise ConfigurationError(
                f"{name} returned {type(found).__name__}. Return a dict of columns, or postroad.projections.DELETE."
            )
        if unknown := sorted(found.keys() - self._names - {self.key}):
            raise ConfigurationError(
                f"{name} returned {', '.join(unknown)}, which {self.table.name} has not, or keeps by itself. "
                f"Columns to fill: {', '.join(sorted(self._names))}."
            )
        if self.key in found and found[self.key] != key:
            raise ConfigurationError(
                f"{name} returned {found[self.key]!r} as {self.key}, but the row is that of the aggregate {key!r}. "
                "Leave the key out: it is the aggregate's id."
            )
        return {column: value for column, value in found.items() if column != self.key}

    # -- what can be a projection --------------------------------------------------------------------

    def _check(self) -> None:
        table, names = self.table, set(self.table.columns.keys())
        for what in filter(None, (self.key, self.version, self.deleted)):
            if what not in names:
                raise self._refused(f"there is no column {what!r}", f"Its columns are: {', '.join(sorted(names))}")
        if [c.name for c in table.primary_key] != [self.key]:
            raise self._refused(f"its primary key is not {self.key} alone", "A row belongs to one aggregate")
        if table.c[self.key].type.python_type not in (str, int, UUID):
            raise self._refused(f"{self.key} is neither text, integer nor UUID", "It holds the aggregate's id")
        if table.autoincrement_column is not None:
            # MySQL would take 0 for "the next number".
            raise self._refused("the database would number its key", "Write autoincrement=False in its Column")
        if any(isinstance(c, UniqueConstraint) for c in table.constraints) or any(i.unique for i in table.indexes):
            # MySQL's upsert would take the row that is equal there for the one that is meant.
            raise self._refused("something beside the key is unique", "Use a plain index: the owner keeps it unique")
        if table.foreign_keys:
            raise self._refused("it has a foreign key", "Events of the other table may come later: leave it out")
        if len(table.name) > _LONGEST_NAME:
            raise self._refused("its name is too long", f"Use at most {_LONGEST_NAME} characters")

    def _check_can_delete(self) -> None:
        if self.deleted is None:
            raise self._refused(
                "a row is to be deleted, but nothing could say so",
                'Add a Boolean column and name it: road.projection(…, deleted="deleted")',
            )
        if needed := [c.name for c in self.columns if not c.nullable]:
            raise self._refused(
                f"a deleted row keeps only its key and version, but {', '.join(needed)} cannot be NULL",
                "Make them nullable",
            )

    def _refused(self, cause: str, cure: str) -> ConfigurationError:
        return ConfigurationError(f"Projection {self.name}, table {self.table.name}: {cause}. {cure}.")


def _check_name(name: str) -> str:
    """It becomes part of a subscription's name when the projection is rebuilt."""
    try:
        check_group(name.replace("_", "-") + "-rebuild-00000000")
    except InvalidName:
        rule = "must be made of lower-case letters and digits with single underscores between, at most 47 characters."
        raise InvalidName("projection", name, rule) from None
    return name


def _only_key(table: Table) -> str:
    keys = [column.name for column in table.primary_key]
    return keys[0] if len(keys) == 1 else ""


def _wants(function: Callable[..., Any], offered: Sequence[str]) -> frozenset[str]:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{name} is async. A projection's function only computes a row: make it a plain one.")
    _, *more = inspect.signature(function).parameters.values()
    if wrong := [p.name for p in more if p.name not in offered and p.default is inspect.Parameter.empty]:
        raise ConfigurationError(
            f"{name} asks for {wrong[0]!r}, which it is not given. "
            f"After the event it may ask for: {', '.join(offered)}."
        )
    return frozenset(p.name for p in more if p.name in offered)
