"""The handlers of this process without a broker in between, through the same template."""

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.codec.upcast import Upcasters
from postroad.errors import StoreError, UnknownEventType
from postroad.events import EventType
from postroad.handlers.handler import Handler
from postroad.handlers.registry import Registry
from postroad.inbox import ConsumeOptions, ConsumeResult, Inbox
from postroad.message import Message
from postroad.naming import check_group

_log = logging.getLogger("postroad")


class Bus:
    """A message is kept in its record until it has succeeded, so that a RetryScheduler can run it again."""

    def __init__(
        self,
        inbox: Inbox,
        registry: Registry | None = None,
        upcasters: Upcasters | None = None,
        *,
        options: ConsumeOptions | None = None,
        road: object = None,
    ) -> None:
        self._inbox, self._road = inbox, road
        self._registry = registry or Registry()
        self._upcasters = upcasters or Upcasters()
        self._options = options or ConsumeOptions(keep_message=True)

    def register(self, group: str, event_type: EventType | type, function: Callable[..., Any]) -> Handler:
        return self._registry.add(check_group(group, on_broker=False), event_type, function)

    @property
    def groups(self) -> tuple[str, ...]:
        return self._registry.groups

    async def publish(self, message: Message) -> None:
        """Runs each group's handler. A failure is recorded and tried again; other groups go on.

        Raises StoreError if something could not even be recorded: then publish it again.
        """
        unrecorded: StoreError | None = None
        for group in self.groups:
            if self._registry.find(group, message) is None:
                continue
            try:
                await self.consume(group, message, self._options)
            except StoreError as error:
                unrecorded = error
            except Exception as error:
                _log.warning("%s %s failed in group %s: %s", message.type, message.id, group, error)
        if unrecorded:
            raise unrecorded

    async def consume(self, group: str, message: Message, options: ConsumeOptions) -> ConsumeResult:
        """One group's handler through the template. The handler's error goes on up."""

        async def handle(message: Message, session: AsyncSession) -> None:
            handler = self._registry.find(group, message)
            if handler is None:
                raise UnknownEventType(f"Group {group} has no handler for {message.type}. Register one.")
            event = self._upcasters.read(message, handler.event_type)
            await handler([event], [message], session, self._road)

        return await self._inbox.consume(group, message, handle, options)
