"""Whether what was promised is there: commands, domain events, outbox and inbox compared with each other.

    report = await road.check(since=86_400)

`check` only looks, `repair` mends what can be mended, `verify` finds losses between outbox and inboxes by small sums.
"""

from postroad.consistency.check import check
from postroad.consistency.ledger import Ledger
from postroad.consistency.losses import MOST_KEPT, Comparison, Loss, Uncompared, export, resend, shortened, verify
from postroad.consistency.repair import Repaired, repair
from postroad.consistency.report import Finding, Report

__all__ = [
    "MOST_KEPT",
    "Comparison",
    "Finding",
    "Ledger",
    "Loss",
    "Repaired",
    "Report",
    "Uncompared",
    "check",
    "export",
    "repair",
    "resend",
    "shortened",
    "verify",
]
