"""A live installation examined: what is missing, wrong or standing still, why, and what to do about it.

Every check only looks, bounds what it reads, and has a time limit. One that cannot be made says so.
"""

from postroad.operations.doctor.checks import CHECKS
from postroad.operations.doctor.examine import PATIENCE, Report, examine
from postroad.operations.doctor.finding import Check, Finding, Level, Problem

__all__ = ["CHECKS", "PATIENCE", "Check", "Finding", "Level", "Problem", "Report", "examine"]
