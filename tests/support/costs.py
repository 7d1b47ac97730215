"""What a statement costs, as each database counts: buffers on PostgreSQL, rows on MariaDB, machine steps on SQLite."""

from typing import Any
from unittest.mock import patch

from sqlalchemy import text

from postroad.testing.office import Office


async def cost(office: Office, statement: str, **asked: Any) -> int:
    measure = {"postgresql": _buffers, "mysql": _rows_read, "sqlite": _steps}[office.store.dialect]
    # The first look after many rows were deleted steps over their remains once, and marks them for those after it.
    return min([await measure(office, statement, asked) for _ in range(3)])


async def _buffers(office: Office, statement: str, asked: dict[str, Any]) -> int:
    """As the store itself asks: its connections differ in what their planners may do."""
    sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {office.store.sql(statement, office.table)}"
    with patch.object(office.store, "sql", return_value=sql):
        found = await office.store.read(statement, office.table, **asked)
    plan = found.rows[0][0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def _rows_read(office: Office, statement: str, asked: dict[str, Any]) -> int:
    async with office.store.reading() as connection:
        await connection.execute(text("FLUSH STATUS"))
        await office.store.execute(connection, statement, office.table, **asked)
        status = await connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
        return sum(int(row[1]) for row in status)


async def _steps(office: Office, statement: str, asked: dict[str, Any]) -> int:
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    async with office.store.reading() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        await raw.set_progress_handler(step, 10)
        try:
            await office.store.execute(connection, statement, office.table, **asked)
        finally:
            await raw.set_progress_handler(None, 10)
    return taken
