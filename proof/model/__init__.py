"""Postroad's protocol as an explicit-state model: every order of steps and faults within small bounds is tried.

`python -m proof.model` explores the scenarios, which must show no violation, and hunts the mutants, each of which
must show one. Nothing here touches a database or a broker: the model mirrors the SQL and the loops of the real code.
"""

from proof.model.explore import Explored, explore
from proof.model.invariants import INVARIANTS
from proof.model.mutants import MUTANTS, Mutant
from proof.model.scenarios import SCENARIOS
from proof.model.story import story
from proof.model.world import Rules, Scenario, World

__all__ = ["INVARIANTS", "MUTANTS", "SCENARIOS", "Explored", "Mutant", "Rules", "Scenario", "World", "explore", "story"]
