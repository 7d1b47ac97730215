"""A failing seed has fifty faults, of which two or three matter: which ones?"""

from proof.simulator.runs import Simulator
from proof.simulator.world import Outcome


def shrink(simulator: Simulator, failed: Outcome) -> frozenset[int]:
    """The faults that can be spared with the seed still failing, tried in ever smaller pieces."""
    spared: frozenset[int] = frozenset()
    piece = max(1, failed.drawn // 2)
    while True:
        begin = 1
        while begin <= failed.drawn:
            attempt = spared | set(range(begin, begin + piece))
            if attempt != spared and simulator.run(failed.seed, spared=attempt).violations:
                spared = frozenset(attempt)
            begin += piece
        if piece == 1:
            return spared
        piece //= 2
