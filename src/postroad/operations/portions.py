"""Much is done in portions: nothing is held for long, and what is done stays done when it breaks off."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""How many are done, of how many."""

PORTION: Final = 200


def untold(done: int, total: int) -> None:
    return None


def in_portions(items: Sequence[T], progress: Progress) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), PORTION):
        yield items[first : first + PORTION]
        progress(min(first + PORTION, len(items)), len(items))
