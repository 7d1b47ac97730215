"""What can be set about the shop, with the frozen defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from postroad.errors import ConfigurationError
from postroad.retry import TABLE, Backoff

TIMEOUT_VARIABLE: Final = "ORDER_TIMEOUT_PENDING_MINUTES"
SWEEP_VARIABLE: Final = "ORDER_TIMEOUT_SWEEP_SECONDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    database_url: str | None = None
    """None: DATABASE_URL, else a SQLite file."""
    broker_url: str | None = None
    """None: BROKER_URL, else the embedded broker."""
    pending_minutes: float = 15.0
    """How long an order may wait for its payment."""
    sweep_interval: float = 60.0
    """Seconds between two looks of the sweep job."""
    sweep_batch: int = 100
    relay_batch: int = 200
    relay_poll: float = 5.0
    """Seconds between two looks into the outbox; a commit in the same process is told at once."""
    relay_backoff: Backoff = TABLE
    """5 s, 30 s, 2 min, then FAILED."""
    consumer_backoff: Backoff = Backoff(attempts=5, base=1.0, ceiling=300.0)  # noqa: RUF009  # frozen itself

    def __post_init__(self) -> None:
        for name in ("pending_minutes", "sweep_interval", "sweep_batch"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}. It must be more than 0.")

    @property
    def payment_time(self) -> timedelta:
        return timedelta(minutes=self.pending_minutes)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    given: dict[str, float] = {}
    for field, variable in (("pending_minutes", TIMEOUT_VARIABLE), ("sweep_interval", SWEEP_VARIABLE)):
        if text := environment.get(variable):
            try:
                given[field] = float(text)
            except ValueError:
                raise ConfigurationError(f"{variable} is {text!r}. Give a number, such as 15 or 0.5.") from None
    return Settings(**given)  # type: ignore[arg-type]
