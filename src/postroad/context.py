"""What is being handled right now, so that events written meanwhile know their cause."""

from contextvars import ContextVar

from postroad.message import Message

current_message: ContextVar[Message | None] = ContextVar("postroad_current_message", default=None)
