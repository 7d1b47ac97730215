"""Verdicts, and what becomes of messages whose receiver is gone."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from postroad.brokers.embedded.database import SQL
from postroad.retry import Ack, Dead, Decision, Retry


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to happen to one delivery, with the lease that entitles to it: holder and attempt."""

    subscription: int
    message: int
    key: str
    holder: int
    attempt: int
    decision: Decision


def settle(connection: sqlite3.Connection, now: int, *, verdicts: Sequence[Verdict]) -> None:
    """Applies each verdict whose lease still holds; the others change nothing."""
    connection.executemany(
        SQL["ack"],
        [(v.subscription, v.message, v.holder, v.attempt) for v in verdicts if isinstance(v.decision, Ack)],
    )
    for verdict in verdicts:
        match verdict.decision:
            case Dead(reason):
                _bury(connection, now, verdict, reason)
            case Retry(after):
                _give_back(connection, now, verdict, after)
    _promote(connection, {(v.subscription, v.key) for v in verdicts})


def release(connection: sqlite3.Connection, now: int, *, holder: int, counted: bool) -> None:
    """Everything the receiver holds goes back at once, and its lease ends.

    `counted`: the deliveries were attempts (it died on them), so the limit of attempts applies.
    """
    held = connection.execute(SQL["held"], {"holder": holder}).fetchall()
    for subscription, message, key, attempt in held if counted else ():
        if _exhausted(connection, subscription, attempt):
            verdict = Verdict(subscription, message, key, holder, attempt, Dead(""))
            _bury(connection, now, verdict, f"exceeded maxRetry ({attempt} deliveries): the lease ran out")
    connection.execute(SQL["release"], {"holder": holder, "uncounted": 0 if counted else 1})
    connection.execute(SQL["forget_receiver"], {"holder": holder})
    _promote(connection, {(subscription, key) for subscription, _, key, _ in held})


def _give_back(connection: sqlite3.Connection, now: int, verdict: Verdict, after: float) -> None:
    if _exhausted(connection, verdict.subscription, verdict.attempt):
        _bury(connection, now, verdict, f"exceeded maxRetry ({verdict.attempt} deliveries)")
        return
    connection.execute(SQL["give_back"], _lease(verdict) | {"due": now + round(after * 1_000_000)})


def _bury(connection: sqlite3.Connection, now: int, verdict: Verdict, reason: str) -> None:
    connection.execute(SQL["bury"], _lease(verdict) | {"reason": reason, "now": now})
    connection.execute(SQL["ack"], (verdict.subscription, verdict.message, verdict.holder, verdict.attempt))


def _exhausted(connection: sqlite3.Connection, subscription: int, attempt: int) -> bool:
    names = {"subscription": subscription, "attempt": attempt}
    return bool(connection.execute(SQL["exhausted"], names).fetchall())


def _promote(connection: sqlite3.Connection, lanes: set[tuple[int, str]]) -> None:
    connection.executemany(
        SQL["promote"], [{"subscription": subscription, "key": key} for subscription, key in lanes if key]
    )


def _lease(verdict: Verdict) -> dict[str, int | str]:
    return {
        "subscription": verdict.subscription,
        "message": verdict.message,
        "holder": verdict.holder,
        "attempt": verdict.attempt,
    }
