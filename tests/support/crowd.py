"""Some rows of which there is something to do, in databases with and without thousands of which there is not."""

from typing import Final

from postroad.stores import Store
from tests.support.rows import COMMANDS, INBOX, JOURNAL, OUTBOX, PAST, Row, numbered

FEW: Final = range(20_000, 20_400)
MANY: Final = range(10_000)
_TABLES: Final = "postroad_outbox, postroad_inbox, postroad_command_box, postroad_projection_journal"
_GATHER: Final = {"postgresql": f"ANALYZE {_TABLES}", "mysql": f"ANALYZE TABLE {_TABLES}"}


async def crowd(store: Store) -> None:
    """What is settled, and a journal. Its commands are all of the one aggregate that has others yet to come."""
    await INBOX.put(store, *(numbered(INBOX, n, {"status": 1}) for n in MANY))
    await COMMANDS.put(store, *(numbered(COMMANDS, n, {"aggregate_id": "busy"}) for n in MANY))
    await OUTBOX.put(store, *(_delivery(n, 1, "SENT") for n in MANY))
    await JOURNAL.put(store, *({"position": n + 1} for n in MANY))


async def few(store: Store) -> None:
    """What failed, what waits behind it, and what waits for nothing."""
    await INBOX.put(store, *(numbered(INBOX, n, {"status": 2, "processed_at": None}) for n in FEW))
    await COMMANDS.put(store, *(numbered(COMMANDS, n, {"status": "FAILED"}) for n in FEW))
    waiting = {"status": "PENDING", "aggregate_id": "busy"}
    await COMMANDS.put(store, *(numbered(COMMANDS, n + len(FEW), waiting) for n in FEW))
    await OUTBOX.put(store, *(_delivery(n, 1, "FAILED" if n % 256 else "NEW") for n in FEW))
    await OUTBOX.put(store, *(_delivery(n, 2, "NEW") for n in FEW))


async def gather_statistics(store: Store) -> None:
    if gather := _GATHER.get(store.dialect):
        async with store.transaction() as connection:
            await connection.exec_driver_sql(gather)


def _delivery(n: int, version: int, state: str) -> Row:
    of_key = {"ordering_key": f"parcel/a{n}", "shard": n % 256, "version": version, "state": state}
    return numbered(OUTBOX, 2 * n + version, of_key | {"published_at": PAST if state == "SENT" else None})
