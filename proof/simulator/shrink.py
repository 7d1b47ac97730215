"""A failing seed has fifty faults, of which a few matter: which ones?"""

from proof.simulator.runs import Simulator
from proof.simulator.world import Outcome


def shrink(simulator: Simulator, failed: Outcome) -> list[int]:
    """Numbers of faults with which alone the seed still fails; the others are left out in ever smaller pieces."""
    kept = list(range(1, failed.drawn + 1))
    piece = len(kept)
    while piece > 1:
        piece = (piece + 1) // 2
        for begin in reversed(range(0, len(kept), piece)):
            fewer = kept[:begin] + kept[begin + piece :]
            if simulator.run(failed.seed, only=fewer).violations:
                kept = fewer
    return kept
