"""A failing seed has fifty faults, of which a few matter: which ones?"""

from proof.simulator.runs import Simulator
from proof.simulator.world import Outcome


def shrink(simulator: Simulator, failed: Outcome) -> list[int]:
    """Numbers of faults with which alone the seed still fails; the others are left out in ever smaller pieces, then one
    by one until each is needed: what one of them did may have made room for another."""
    kept = list(range(1, failed.drawn + 1))
    piece, before = len(kept), -1
    while piece > 1 or len(kept) != before:
        piece, before = max(1, (piece + 1) // 2), len(kept)
        for begin in reversed(range(0, len(kept), piece)):
            fewer = kept[:begin] + kept[begin + piece :]
            if simulator.run(failed.seed, only=fewer).violations:
                kept = fewer
    return kept
