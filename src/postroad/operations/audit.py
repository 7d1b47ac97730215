"""Who did what by hand, and why."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.stores.base import Store

NEWEST_ACT: Final = 2**62


@dataclass(frozen=True, slots=True)
class Act:
    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: str


def this_user() -> str:
    """The operating system's name for whoever runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # In a container the user id need not have a name.
        return f"uid {os.getuid()}"


async def record(
    store: Store, connection: AsyncConnection, *, actor: str, action: str, subject: str, detail: str = ""
) -> None:
    """In the transaction of the act itself, so that there is never one without the other."""
    await store.execute(
        connection,
        "audit_add",
        now=store.clock.now(),
        actor=actor[:255],
        action=action,
        subject=subject[:255],
        detail=detail,
    )


async def acts(store: Store, *, subject: str = "", limit: int = 50, before: int = NEWEST_ACT) -> Sequence[Act]:
    """Newest first; `before` is the id of the last one of the previous page."""
    async with store.reading() as connection:
        found = await store.execute(connection, "audit_list", subject=subject, limit=limit, before=before)
    return [
        Act(row.id, store.time_out(row.at), row.actor, row.action, row.subject, row.detail or "")  # type: ignore[arg-type]
        for row in found.rows
    ]
