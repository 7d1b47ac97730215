"""What must happen, in plain dicts and lists: no database, no broker, no relay.

Times are seconds since the beginning. They are chosen so that none ever equals another's deadline.
"""

import math
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

LEASE, WAIT, RETENTION = 10_000.0, 6_000.0, 30_000.0
SHORT, LONG = 4_000.0, 25_000.0
ATTEMPTS = 3


class Conflict(Exception):
    pass


@dataclass
class Row:
    id: Any
    parcel: str
    topic: str
    version: int
    state: str = "NEW"
    attempts: int = 0
    due: float | None = None
    published: float = 0.0

    @property
    def unsent(self) -> bool:
        return self.state not in ("SENT", "SKIPPED")

    @property
    def shard(self) -> int:
        return crc32(f"parcel/{self.parcel}".encode()) % 256


@dataclass
class Consumed:
    version: int
    key: str
    status: int = 0
    epoch: int = 0
    failures: int = 0
    locked: float | None = None
    due: float | None = None
    processed: float | None = None
    waiting: str | None = None


@dataclass(eq=False)
class Holder:
    """What a relay believes."""

    held: dict[int, int] = field(default_factory=dict)
    safe_until: float = -math.inf
    renew_at: float = -math.inf
    out_since: dict[str, float] = field(default_factory=dict)

    def doubt(self) -> None:
        self.safe_until = self.renew_at = -math.inf


@dataclass
class Lease:
    holder: Holder | None = None
    expires: float = 0.0
    epoch: int = 0


@dataclass
class Fate:
    """What becomes of a send: of a batch, what comes before `cut` is answered."""

    kind: str = "none"
    cut: int = 0


class Oracle:
    def __init__(self) -> None:
        self.now = 0.0
        self.rows: dict[Any, Row] = {}
        self.counters: dict[str, int] = {}
        self.leases = [Lease() for _ in range(256)]
        self.seen: dict[Holder, float] = {}
        self.refused: set[str] = set()
        self.sent: list[tuple[Any, int]] = []
        self.inbox: dict[tuple[str, Any], Consumed] = {}
        self.effects: list[tuple[str, str]] = []

    # -- writing ---------------------------------------------------------------------------------------

    def add(self, id: Any, parcel: str, topic: str, version: int | None) -> None:
        if id in self.rows:
            return
        reached = self.counters.get(parcel, 0)
        if version is not None and version <= reached:
            raise Conflict
        self.counters[parcel] = version or reached + 1
        self.rows[id] = Row(id, parcel, topic, self.counters[parcel])

    # -- carrying --------------------------------------------------------------------------------------

    def keep(self, relay: Holder) -> None:
        self.seen[relay] = self.now
        mine = [n for n, lease in enumerate(self.leases) if lease.holder is relay]
        for n in mine:
            self.leases[n].expires = self.now + LEASE
        alive = sum(seen > self.now - LEASE for seen in self.seen.values())
        share = math.ceil(256 / alive)
        for n in mine[share:]:
            self.leases[n].holder = None
        free = [n for n, lease in enumerate(self.leases) if lease.holder is None or lease.expires <= self.now]
        for n in free[: max(0, share - len(mine))] if len(mine) <= share else []:
            self.leases[n] = Lease(relay, self.now + LEASE, self.leases[n].epoch + 1)
        relay.held = {n: lease.epoch for n, lease in enumerate(self.leases) if lease.holder is relay}
        relay.safe_until, relay.renew_at = self.now + 0.9 * LEASE, self.now + 1

    def runs(self, relay: Holder) -> list[list[Row]]:
        """One round's beginning: what this relay may send now, key by key."""
        if self.now >= relay.renew_at:
            self.keep(relay)
        held = relay.held if self.now < relay.safe_until else {}
        found, probed = [], set()
        for parcel in sorted(self.counters, key=lambda parcel: (Row(0, parcel, "", 0).shard, parcel)):
            run = self._run(parcel)
            if not run or run[0].shard not in held:
                continue
            topic = run[0].topic
            if topic in relay.out_since:
                if relay.out_since[topic] >= self.now or topic in probed:
                    continue
                probed.add(topic)
                run = run[:1]
            found.append(run)
        return found

    def _run(self, parcel: str) -> list[Row]:
        rows = sorted((r for r in self.rows.values() if r.parcel == parcel and r.unsent), key=lambda r: r.version)
        if not rows or rows[0].state == "FAILED" or (rows[0].due is not None and rows[0].due > self.now):
            return []
        until = next((n for n, row in enumerate(rows) if row.topic != rows[0].topic), len(rows))
        return rows[:until]

    def send(self, runs: list[list[Row]], fate: Fate) -> list[list[str]]:
        """What reaches the broker, and the answer to each."""
        batch = [row for run in runs for row in run]
        cut = len(batch) if fate.kind == "none" else fate.cut % len(batch)
        taken = cut if fate.kind == "unavailable" else len(batch)
        answers = []
        held_back: set[str] = set()
        for n, row in enumerate(batch):
            answer = "out"
            if n < taken and row.parcel not in held_back:
                if row.parcel in self.refused:
                    answer = "refused"
                    held_back.add(row.parcel)
                else:
                    answer = "confirmed"
                    self.sent.append((row.id, row.version))
            answers.append(answer if n < cut else "out")
        rest = iter(answers)
        return [[next(rest) for _ in run] for run in runs]

    def settle(
        self, relay: Holder, runs: list[list[Row]], answers: list[list[str]], epochs: dict[int, int], at: float
    ) -> int:
        settled = marked = 0
        out = set()
        for run, told in zip(runs, answers, strict=True):
            for row, answer in zip(run, told, strict=True):
                if answer == "out":
                    out.add(row.topic)
                    break
                relay.out_since.pop(row.topic, None)
                settled += 1
                lease = self.leases[row.shard]
                ours = lease.holder is relay and lease.epoch == epochs[row.shard]
                marked += ours and self._mark(row, answer)
                if answer == "refused":
                    break
        relay.out_since |= dict.fromkeys(out, at)
        if marked < settled:
            relay.doubt()
        return settled

    def _mark(self, row: Row, answer: str) -> bool:
        if row.id not in self.rows or row.state == "SENT" or (answer == "refused" and not row.unsent):
            return False
        if answer == "confirmed":
            row.state, row.published = "SENT", self.now
            return True
        row.attempts += 1
        row.state = "FAILED" if row.attempts >= ATTEMPTS else "RETRY"
        row.due = self.now + (0.0 if row.state == "FAILED" else WAIT)
        return True

    def round(self, relay: Holder, fate: Fate) -> int:
        runs = self.runs(relay)
        if not runs:
            return 0
        return self.settle(relay, runs, self.send(runs, fate), dict(relay.held), self.now)

    def carry(self, relay: Holder) -> None:
        while self.round(relay, Fate()):
            pass

    def prune(self) -> int:
        settled = [r for r in self.rows.values() if r.state in ("SENT", "SKIPPED")]
        old = [r.id for r in settled if r.published < self.now - RETENTION]
        for id in old:
            del self.rows[id]
        return len(old)

    # -- by hand ---------------------------------------------------------------------------------------

    def retry(self, id: Any) -> bool:
        return self._by_hand(id, "NEW")

    def skip(self, id: Any) -> bool:
        skipped = self._by_hand(id, "SKIPPED")
        if skipped:
            self.rows[id].published = self.now
        return skipped

    def _by_hand(self, id: Any, state: str) -> bool:
        row = self.rows.get(id)
        if row is None or row.state not in ("FAILED", "RETRY"):
            return False
        row.state, row.due = state, None
        row.attempts = 0 if state == "NEW" else row.attempts
        return True

    # -- consuming -------------------------------------------------------------------------------------

    def acquire(self, group: str, id: Any, parcel: str, version: int) -> str:
        """taken, replayed, stopped or busy."""
        key = f"parcel/{parcel}"
        record = self.inbox.get((group, id)) or Consumed(version, key, locked=self.now)
        if record.status == 1:
            return "replayed"
        if record.status == 2 and record.due is None:
            return "stopped"
        if record.status == 0 and record.locked is not None and record.locked > self.now:
            return "busy"
        waiting = [r for (g, _), r in self.inbox.items() if g == group and r.waiting == record.key]
        if any(one.version < record.version for one in waiting) or (record.due or 0.0) > self.now:
            return "busy"
        record.status, record.epoch, record.locked = 0, record.epoch + 1, self.now + LEASE
        record.due = record.processed = None
        self.inbox[group, id] = record
        return "taken"

    def succeed(self, group: str, id: Any, epoch: int) -> bool:
        record = self.inbox.get((group, id))
        if record is None or record.epoch != epoch or record.status != 0:
            return False
        record.status, record.processed, record.waiting, record.locked, record.due = 1, self.now, None, None, None
        self.effects.append((group, str(id)))
        return True

    def fail(self, group: str, id: Any, how: str) -> None:
        record = self.inbox[group, id]
        record.failures += 1
        record.status, record.locked = 2, None
        again = how == "transient" and record.failures < ATTEMPTS
        record.due = self.now + WAIT if again else None
        record.waiting = record.key if again else None
        record.processed = self.now if how == "business" else None

    def retry_record(self, group: str, id: Any) -> bool:
        record = self.inbox.get((group, id))
        if record is None or record.status != 2:
            return False
        record.due, record.failures, record.processed = self.now, 0, None
        return True

    def discard_record(self, group: str, id: Any) -> bool:
        record = self.inbox.get((group, id))
        if record is None or record.status != 2:
            return False
        record.due, record.processed, record.waiting = None, self.now, None
        return True

    def prune_inbox(self) -> int:
        old = [k for k, r in self.inbox.items() if r.status == 1 and (r.processed or 0.0) < self.now - RETENTION]
        for key in old:
            del self.inbox[key]
        return len(old)
