"""Stage 6 of 7: the user's code. Which function handles which event in which group, and how it is called."""

from postroad.handlers.bus import Bus
from postroad.handlers.handler import Handler
from postroad.handlers.registry import Registry

__all__ = ["Bus", "Handler", "Registry"]
