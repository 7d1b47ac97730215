"""An outage is not the message's fault: wait for the broker, burn no attempts."""

import random

from postroad.clock import Clock

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 0.5


class Breaker:
    """Per destination: closed (send), open (do not ask), half open (one probe)."""

    def __init__(self, clock: Clock, randomness: random.Random) -> None:
        self._clock, self._randomness = clock, randomness
        self._failures: dict[str, int] = {}
        self._open_until: dict[str, float] = {}

    def allows(self, destination: str) -> bool:
        return self._clock.monotonic() >= self._open_until.get(destination, 0.0)

    def is_probing(self, destination: str) -> bool:
        return destination in self._failures

    def tripped(self, destination: str) -> None:
        failures = self._failures[destination] = self._failures.get(destination, 0) + 1
        pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 16), _LONGEST_PAUSE)
        # Jitter, so that many relays do not knock at the same instant; never longer than the longest pause.
        pause *= 0.5 + self._randomness.random() / 2
        self._open_until[destination] = self._clock.monotonic() + pause

    def recovered(self, destination: str) -> None:
        self._failures.pop(destination, None)
        self._open_until.pop(destination, None)

    @property
    def open_destinations(self) -> list[str]:
        return sorted(self._failures)
