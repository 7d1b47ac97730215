"""Your service, run again and again with one fault each; and the story when one of them changed the outcome."""

from postroad.testing.survival.faults import Fault
from postroad.testing.survival.survival import DidNotSurvive, Survival, Survived, rows

__all__ = ["DidNotSurvive", "Fault", "Survival", "Survived", "rows"]
