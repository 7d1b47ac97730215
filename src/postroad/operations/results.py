"""What the last check, comparison and examination found: in the database, for whoever asks later and elsewhere."""

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from postroad.stores.base import Store

CHECK: Final = "check"
VERIFY: Final = "verify"
DOCTOR: Final = "doctor"

F = TypeVar("F")


async def keep(store: Store, kind: str, found: Any, *, actor: str) -> None:
    """In place of the one before: to look again is cheaper than to keep what is out of date."""
    told = msgspec.json.encode(found).decode()
    await store.change("result_keep", kind=kind, now=store.clock.now(), actor=actor[:255], found=told)


async def last(store: Store, kind: str, shape: type[F]) -> tuple[datetime, str, F] | None:
    """When, by whom, and what was found; None if nobody has looked yet."""
    for row in (await store.read("result_last", kind=kind)).rows:
        try:
            return store.time_out(row.at), row.actor, msgspec.json.decode(row.found, type=shape)  # type: ignore[return-value]
        except msgspec.DecodeError:
            # Processes of two versions run side by side during a deploy, and tell the same in different shapes.
            return None
    return None
