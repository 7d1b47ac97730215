"""Log lines in the agreed words: every line about an event names eventId, traceId, queue and consumer, and says
duplicate, unsupported, unsent and failed in the frozen texts, also where it is Postroad that speaks.
"""

import logging
from typing import Final

from examples.marketplace import texts
from examples.marketplace.consumers import QUEUES

_TEXTS: Final = {
    "duplicate": texts.ALREADY_HANDLED,
    "unknown_type": texts.UNSUPPORTED_TYPE,
    "unreadable": texts.NOT_CONSUMED,
    "failed": texts.NOT_CONSUMED,
    "conflict": texts.NOT_CONSUMED,
    "refused": texts.NOT_SENT,
    "parked": texts.NOT_SENT,
}
_BY_GROUP: Final = {queue.group: queue for queue in QUEUES}


_SPEAKERS: Final = ("postroad", "postroad.relay", "marketplace.consumers")
"""The loggers that speak of single events. A logger's filter does not see what its children say, so each is named."""


def install() -> None:
    """Whatever handlers there are, and whoever has set them up."""
    for name in _SPEAKERS:
        logging.getLogger(name).addFilter(WORDING)


def remove() -> None:
    for name in _SPEAKERS:
        logging.getLogger(name).removeFilter(WORDING)


class Wording(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        event_id = getattr(record, "event_id", None)
        if event_id is None or getattr(record, "worded", False):
            return True
        if queue := _BY_GROUP.get(getattr(record, "group", "")):
            record.queue, record.consumer = queue.name, queue.consumer
        trace_id = getattr(record, "trace_id", None) or getattr(record, "correlation_id", None)
        record.trace_id = trace_id
        words = [_TEXTS.get(getattr(record, "outcome", ""), ""), record.getMessage()]
        words += [
            f"{said}={value}"
            for said, value in (
                ("eventId", event_id),
                ("traceId", trace_id),
                ("queue", getattr(record, "queue", None)),
                ("consumer", getattr(record, "consumer", None)),
            )
            if value
        ]
        record.msg, record.args = " ".join(word for word in words if word), ()
        record.worded = True
        return True


WORDING: Final = Wording()
