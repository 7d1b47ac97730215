"""Where two versions of one read model differ. The database compares, so that memory does not depend on their size."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import JSON, ColumnElement, FromClause, Text, and_, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.projections.shadow import columns_of

if TYPE_CHECKING:
    from postroad.projections.projection import Projection

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Differences:
    """How many rows, and the first keys of each kind. What is compared with counts as right."""

    rows: int = 0
    """That should be there."""
    missing: int = 0
    extra: int = 0
    stale: int = 0
    """Behind in version."""
    ahead: int = 0
    """Of a version that nothing accounts for."""
    differing: int = 0
    """Of the same version, with other values."""
    keys: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.stale or self.ahead or self.differing)

    @property
    def lost(self) -> int:
        """Rows of which the projection knows more than what it is compared with."""
        return self.extra + self.ahead


async def compare(projection: "Projection", connection: AsyncConnection, right: FromClause) -> Differences:
    """The projection's table with `right`, which has the same columns or some of them, at least the key."""
    there = await connection.run_sync(columns_of, projection.table)
    if not there:
        rows = await connection.scalar(select(func.count()).select_from(right).where(*_present(projection, right)))
        return Differences(rows=rows or 0, missing=rows or 0)
    conditions = _conditions(projection, right, there)
    counts, keys = {}, {}
    for kind, (key, source, condition) in conditions.items():
        counts[kind] = await connection.scalar(select(func.count()).select_from(source).where(condition)) or 0
        if counts[kind] and kind != "rows":
            query = select(key).select_from(source).where(condition).order_by(key).limit(_SHOWN)
            keys[kind] = [str(value) for value in (await connection.execute(query)).scalars()]
    return Differences(**counts, keys=keys)


def _conditions(projection: "Projection", right: FromClause, there: set[str]) -> dict[str, tuple[Any, Any, Any]]:
    live, key = projection.table, projection.key
    ours, theirs = live.c[key], right.c[key]
    from_right, from_live = right.outerjoin(live, ours == theirs), live.outerjoin(right, ours == theirs)
    both = right.join(live, ours == theirs)
    shared = [c.name for c in projection.columns if c.name in right.c and c.name in there]
    if projection.deleted and projection.deleted in right.c:
        shared.append(projection.deleted)
    values: Any = or_(*(_plain(live.c[n]).is_distinct_from(_plain(right.c[n])) for n in shared)) if shared else None
    conditions: dict[str, tuple[Any, Any, Any]] = {
        "rows": (theirs, right, and_(*_present(projection, right), theirs.is_not(None))),
        "missing": (theirs, from_right, and_(ours.is_(None), *_present(projection, right))),
        "extra": (ours, from_live, and_(theirs.is_(None), *_present(projection, live))),
    }
    if projection.version not in right.c:
        there_no_more = [~condition for condition in _present(projection, live)]
        conditions["missing"] = (theirs, from_right, or_(ours.is_(None), *there_no_more))
        return conditions | (
            {"differing": (ours, both, and_(values, *_present(projection, live)))} if values is not None else {}
        )
    mine, version = live.c[projection.version], right.c[projection.version]
    conditions |= {"stale": (ours, both, mine < version), "ahead": (ours, both, mine > version)}
    return conditions | ({"differing": (ours, both, and_(mine == version, values))} if values is not None else {})


def _present(projection: "Projection", table: FromClause) -> list[ColumnElement[bool]]:
    """A tombstone is no row to anybody who reads."""
    deleted = table.c.get(projection.deleted) if projection.deleted else None
    return [] if deleted is None else [deleted.is_not(True)]


def _plain(column: Any) -> Any:
    """PostgreSQL has no equality for json."""
    return cast(column, Text) if isinstance(column.type, JSON) else column
