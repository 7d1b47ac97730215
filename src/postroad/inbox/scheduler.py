"""Runs failed events again when they are due and no broker holds them any more."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from postroad.errors import UnreadableMessage
from postroad.inbox.inbox import Inbox
from postroad.inbox.record import ConsumeOptions, ConsumeResult, Record, unpack
from postroad.message import Message

if TYPE_CHECKING:
    from postroad.handlers.bus import Bus

_BATCH: Final = 100
_log = logging.getLogger("postroad")

Tell = Callable[[str, Message, float], None]
"""Is told the group, the event that it has handled, and how many seconds that took."""


class RetryScheduler:
    """Several may run at once: acquiring the record decides which of them handles it."""

    def __init__(self, inbox: Inbox, bus: "Bus", options: ConsumeOptions | None = None) -> None:
        self._inbox, self._bus = inbox, bus
        self._options = options or ConsumeOptions(keep_message=True)
        self.tell: Tell | None = None

    async def run_once(self, allowed: Callable[[str], bool] = lambda _: True) -> int:
        """One look at every group that has handlers here and is allowed to; how many records were tried."""
        tried = 0
        for group in self._bus.groups:
            for record in await self._inbox.due(group, _BATCH):
                if not allowed(group):
                    break  # paused, perhaps since the last one
                await self._run(record)
                tried += 1
        return tried

    async def _run(self, record: Record) -> None:
        assert record.message is not None  # `due` gives no others
        try:
            message = unpack(record.message)
        except UnreadableMessage as error:
            # Left as it is, it would be due for ever: a page of such records, and no other is ever tried again.
            if await self._inbox.give_up(record, error):
                _log.error("%s %s is given up in group %s: %s", record.event_type, record.event_id, record.group, error)
        else:
            await self._handle(record.group, message)

    async def _handle(self, group: str, message: Message) -> None:
        began = self._inbox.clock.monotonic()
        try:
            result = await self._bus.consume(group, message, self._options)
        except Exception as error:
            # A handler's error is in the record by now, with the time of the next try.
            _log.warning("%s %s failed again in group %s: %s", message.type, message.id, group, error)
        else:
            if self.tell is not None and result == ConsumeResult():
                self.tell(group, message, self._inbox.clock.monotonic() - began)
