"""When to try again. Decisions only: nothing here waits, reads a clock or touches a store."""

from dataclasses import dataclass
from typing import Final

from postroad.errors import BusinessError, ConfigurationError, PoisonError


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failed attempt, and after how many attempts to stop."""

    attempts: int
    base: float = 1.0
    factor: float = 2.0
    ceiling: float = float("inf")
    table: tuple[float, ...] = ()
    """Explicit waits; the last one repeats. Replaces the formula."""
    linear: bool = False

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigurationError(f"Backoff attempts is {self.attempts}: at least 1 is needed.")
        if not all(0 <= wait < float("inf") for wait in (self.base, *self.table)) or not self.ceiling >= 0:
            raise ConfigurationError("Backoff waits must be finite and not negative.")
        if not 1 <= self.factor < float("inf"):
            raise ConfigurationError(f"Backoff factor is {self.factor}: at least 1 is needed.")

    def after(self, failed: int) -> float | None:
        """Seconds to wait after `failed` attempts (1, 2, …); None when there shall be no further one."""
        if failed >= self.attempts:
            return None
        if self.table:
            return self.table[min(failed, len(self.table)) - 1]
        if self.linear:
            return min(self.base * failed, self.ceiling)
        # The exponent is capped because 2.0 ** 1100 overflows while the ceiling was reached long before.
        return float(min(self.base * self.factor ** min(failed - 1, 64), self.ceiling))


EXPONENTIAL: Final = Backoff(attempts=5, base=20.0, ceiling=600.0)
"""Pub/Sub conventions: 10 s × 2^attempts, at most 10 min, 5 attempts."""
LINEAR_MINUTES: Final = Backoff(attempts=10, base=60.0, linear=True)
"""Outbox framework: one more minute after each failure."""
TABLE: Final = Backoff(attempts=4, table=(5.0, 30.0, 120.0))
"""Marketplace: 5 s, 30 s, 2 min, then FAILED."""
CONSUMER: Final = Backoff(attempts=5, base=1.0, ceiling=300.0)
"""Consumption template: 1 s × 2^(n-1), at most 5 min."""
COMMAND: Final = Backoff(attempts=4, table=(1.0, 5.0, 15.0))
"""Commands: 1, 5 and 15 s."""
PUBLISH: Final = Backoff(attempts=6, base=1.0, ceiling=60.0)
"""Kafka publishing: five retries."""

PRESETS: Final = {
    "exponential": EXPONENTIAL,
    "linear-minutes": LINEAR_MINUTES,
    "table": TABLE,
    "consumer": CONSUMER,
    "command": COMMAND,
    "publish": PUBLISH,
}


@dataclass(frozen=True, slots=True)
class Ack:
    """Settled with a recorded "no": never try again, keep the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    after: float


@dataclass(frozen=True, slots=True)
class Dead:
    reason: str


Decision = Ack | Retry | Dead

LONGEST_REASON: Final = 256
"""What the consume record's error text holds."""


def decide(error: BaseException, failed: int, backoff: Backoff) -> Decision:
    """What becomes of a message whose handling has now failed `failed` times."""
    if isinstance(error, BusinessError):
        return Ack(describe(error))
    if isinstance(error, PoisonError):
        return Dead(describe(error))
    wait = backoff.after(failed)
    if wait is None:
        exceeded = f"exceeded maxRetry ({failed} attempts): "
        return Dead(exceeded + describe(error, LONGEST_REASON - len(exceeded)))
    return Retry(wait)


def describe(error: BaseException, limit: int = LONGEST_REASON) -> str:
    """The error as one line a database and a log can take: no control characters, NUL or lone surrogates."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}" if str(error) else kind
    except Exception:
        # An exception class whose own text fails must not hide that the handler failed.
        text = f"{kind} (its text cannot be shown)"
    return fitting(text, limit)


def fitting(text: str, limit: int = LONGEST_REASON) -> str:
    """What others told us, as a column and a log line can hold it."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
