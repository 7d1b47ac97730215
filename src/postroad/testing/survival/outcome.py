"""What the user can see after a run, held still so that two of them can be compared."""

import copy
import inspect
import pprint
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

_LONGEST: Final = 1_500


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and _comparable(self.value) == _comparable(other.value)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        text = pprint.pformat(self.value, width=100)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"

    def more_than(self, other: "Outcome") -> list[Any]:
        """What this list has and the other has not, each as often as it is too many; nothing if they are no lists."""
        if not isinstance(self.value, list) or not isinstance(other.value, list):
            return []
        left = Counter(map(repr, other.value))
        extra = []
        for one in self.value:
            if left[repr(one)]:
                left[repr(one)] -= 1
            else:
                extra.append(one)
        return extra


UNSEEN: Final = Outcome("nothing that could be seen")
"""After a scenario that died early, what `outcome` looks for may not even exist."""


async def look(outcome: Callable[..., Any], road: object) -> Outcome:
    """The function may be async or not, and may ask for the road."""
    value = outcome(road) if takes_argument(outcome) else outcome()
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict | set | frozenset):
        value = list(value)
    # A copy: a list that a fake gateway goes on filling must not change what it was.
    return Outcome(copy.deepcopy(value))


def takes_argument(function: Callable[..., Any]) -> bool:
    return bool(inspect.signature(function).parameters)


def _comparable(value: Any) -> Any:
    """The order of a list does not count at the top: between keys there is none. Inside it does."""
    return sorted(map(repr, value)) if isinstance(value, list) else value
