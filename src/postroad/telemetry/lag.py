"""How far a group is behind: the version of an event less that to which its aggregate has been brought."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from postroad.message import Message

_REMEMBERED: Final = 10_000


class VersionLag:
    """As far as this process can tell: of the aggregates it handled last, and of what waits in it."""

    def __init__(self) -> None:
        self._reached: OrderedDict[str, int] = OrderedDict()
        self._widest = 0

    def handled(self, message: Message) -> None:
        if message.version is None or message.deliver_at is not None:
            return  # what is delayed stands outside its key's order
        key = message.ordering_key
        reached = self._reached.pop(key, None)
        if reached is not None:
            self._widest = max(self._widest, message.version - reached)
        self._reached[key] = max(message.version, reached or 0)
        if len(self._reached) > _REMEMBERED:
            self._reached.popitem(last=False)

    def take(self, lanes: Iterable[Sequence[object]]) -> int:
        """The widest since it was last asked for, or of what waits now."""
        widest, self._widest = self._widest, 0
        return max([widest, *map(_span, lanes)])


def _span(lane: Sequence[object]) -> int:
    """From the first that waits to the last that has arrived."""
    messages = [message for item in lane if isinstance(message := getattr(item, "message", None), Message)]
    versions = [message.version for message in messages if message.version is not None]
    return versions[-1] - versions[0] + 1 if versions else 0
