"""Holes in the numbering of aggregates' events: among the latest ones, and those that the last check has found."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from postroad.telemetry.meter import Meter

if TYPE_CHECKING:
    from postroad.app import Postroad

_EVER: Final = datetime(1970, 1, 2, tzinfo=UTC)


class _Finding(msgspec.Struct):
    kind: str
    count: int


class _Report(msgspec.Struct):
    """As much as is needed here of what `postroad check` keeps."""

    findings: list[_Finding]


async def read_gaps(road: "Postroad", gauges: Meter, most: int) -> None:
    # Either alone would lie: the latest events know nothing of an old hole, and a check is done only now and then.
    gauges.set("aggregate_version_gaps", max(await _among_the_latest(road, most), await _found_by_the_last_check(road)))


async def _among_the_latest(road: "Postroad", most: int) -> int:
    newest = (await road.store.read("events_newest")).rows[0].seq
    if newest is None:
        return 0
    looked_at = {"low": newest - most + 1, "high": newest, "since": _EVER}
    gaps = (await road.store.read("check_version_gaps", **looked_at, limit=1)).rows
    return int(gaps[0].total) if gaps else 0


async def _found_by_the_last_check(road: "Postroad") -> int:
    for row in (await road.store.read("result_last", kind="check")).rows:
        try:
            report = msgspec.json.decode(row.found, type=_Report)
        except msgspec.DecodeError:
            return 0  # of another release
        return sum(one.count for one in report.findings if one.kind == "version_gap")
    return 0
