"""What a check has found, as frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

KINDS: Final[Mapping[str, str]] = {
    "orphaned_command": "completed commands without the event that says so",
    "missing_outbox": "domain events without an outbox row: nobody will ever be sent them",
    "version_gap": "domain events whose predecessor is missing",
    "unseen": "events that were sent, but that a group has no record of",
    "doubled": "versions of an aggregate that a group has handled under two ids",
    "out_of_order": "events that a group has handled after a later one of the same aggregate",
    "behind_projection": "rows of a read model that lack what its group has handled",
    "expired_command": "commands whose holder has vanished",
    "late_command": "commands that should have been carried out by now",
    "expired_inbox": "events whose handler has vanished",
    "late_inbox": "failed events that should have been tried again by now",
    "late_outbox": "events that should have been sent by now",
    "unreadable": "waiting commands and events that this code cannot read",
}
"""Each kind of finding, in the order of the journey."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    where: str
    """The group or the outbox; empty where there is only one place."""
    count: int
    ids: Sequence[str]
    """The first of them: ids of events or commands; of a version gap, the aggregate and the version behind it; of
    a read model, the aggregate and the version that was handled."""

    @property
    def told(self) -> str:
        return KINDS.get(self.kind, self.kind)  # it may have been kept by newer code


@dataclass(frozen=True, slots=True)
class Report:
    since: datetime
    until: datetime
    """What is younger was left alone: it may be on its way."""
    commands: int
    """Completed ones that were looked at."""
    events: int
    findings: Sequence[Finding]
    not_looked_at: Sequence[str] = field(default_factory=list)
    """What could not be read, with the reason: nothing is known of it."""
    handled: int = 0
    """Records of handled events: one for each event and group, also of groups that are no more."""

    @property
    def consistent(self) -> bool:
        return not self.findings and not self.not_looked_at

    def of(self, kind: str) -> Sequence[Finding]:
        return [one for one in self.findings if one.kind == kind]
