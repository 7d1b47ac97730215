"""Where seeds play: known before the libraries of any store or broker are needed."""

from typing import NamedTuple

STORES = ("sqlite", "postgresql")
BROKERS = ("embedded", "rabbitmq", "pubsub", "kafka")


class Scene(NamedTuple):
    store: str = "sqlite"
    broker: str | None = None

    @property
    def options(self) -> str:
        store = f" --store {self.store}" if self.store != "sqlite" else ""
        return store + (f" --broker {self.broker}" if self.broker else "")
