"""How a relay works."""

from dataclasses import dataclass

from postroad.errors import ConfigurationError
from postroad.retry import EXPONENTIAL, Backoff


@dataclass(frozen=True, slots=True)
class RelayOptions:
    batch: int = 1_000
    lease: float = 15.0
    """Seconds after which the shards of a relay that died are taken over."""
    poll: float = 1.0
    """The longest pause between looks when no wake-up comes."""
    publish_timeout: float = 30.0
    backoff: Backoff = EXPONENTIAL
    relays: int = 1
    """How many work side by side in one process, for each outbox."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigurationError(f"relay.batch is {self.batch}: at least 1 is needed.")
        if self.relays < 1:
            raise ConfigurationError(f"relay.relays is {self.relays}: at least 1 is needed.")
        for name in ("lease", "poll", "publish_timeout"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"relay.{name} is {getattr(self, name)}: it must be more than 0 seconds.")
