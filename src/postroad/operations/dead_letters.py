"""What the broker holds as dead: look, give back, throw away."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from postroad.brokers.base import Broker, DeadLetter
from postroad.errors import OperationRefused
from postroad.message import parse_id
from postroad.operations import audit
from postroad.operations.outbox import readable
from postroad.stores.base import Store

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """One dead letter as a person sees it."""

    id: str
    """The broker's handle; unique within the topic."""
    topic: str
    group: str
    event_id: str
    type: str
    key: str
    reason: str
    attempts: int
    died_at: datetime
    attributes: dict[str, str]
    payload: Any
