"""Which topics are there to be sent to. Kafka's client would wait long for one that is not."""

import time
from typing import Final

from postroad.brokers.base import Refused, Unavailable
from postroad.brokers.kafka.structure import Structure
from postroad.errors import BrokerUnavailable, PostroadError

_FRESH: Final = 10.0
"""Seconds after which a topic is looked at again: somebody may have let it grow."""


class KnownTopics:
    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._seen: dict[str, float] = {}

    async def obstacle(self, topic: str) -> Refused | Unavailable | None:
        """Raises BrokerUnavailable: that concerns all topics, and to wait for it once is enough."""
        if time.monotonic() - self._seen.get(topic, -_FRESH) < _FRESH:
            return None
        try:
            partitions = await self._structure.partitions(topic)
        except BrokerUnavailable:
            raise
        except PostroadError as error:
            return Unavailable(str(error))  # such as a missing permission: for a person to mend
        if not partitions:
            return Refused(f"topic {topic!r} does not exist. Run: postroad topology apply")
        if objection := self._structure.objection(topic, partitions):
            return Unavailable(objection)
        self._seen[topic] = time.monotonic()
        return None

    def forget(self, topic: str) -> None:
        self._seen.pop(topic, None)
