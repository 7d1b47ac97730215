"""A schema as the database itself tells it: columns, types, defaults, indexes, constraints and routines."""

import re
from typing import Final

from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.stores import Store

_SQLITE: Final = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"

_POSTGRESQL: Final = """
SELECT concat_ws(' ', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), l.collname,
                 CASE WHEN a.attnotnull THEN 'not null' END, a.attidentity, a.attgenerated,
                 pg_get_expr(d.adbin, d.adrelid))
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
UNION ALL
SELECT concat_ws(' ', relname, relkind, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL
SELECT pg_get_indexdef(i.indexrelid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'public'::regnamespace
UNION ALL
SELECT concat_ws(' ', CAST(conrelid AS regclass), conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE NOT t.tgisinternal
UNION ALL
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""

_MARIADB_ROUTINES: Final = """
SELECT CONCAT_WS(' ', r.routine_type, r.routine_name, r.sql_data_access, r.is_deterministic, r.security_type,
                 r.routine_definition,
                 (SELECT GROUP_CONCAT(CONCAT_WS(' ', p.parameter_mode, p.parameter_name, p.dtd_identifier,
                                                p.character_set_name, p.collation_name) ORDER BY p.ordinal_position)
                    FROM information_schema.parameters p
                   WHERE p.specific_schema = r.routine_schema AND p.specific_name = r.specific_name))
  FROM information_schema.routines r WHERE r.routine_schema = DATABASE()
"""


async def blueprint(store: Store) -> list[str]:
    """One line for each thing there is; empty for an empty schema."""
    async with store.reading() as connection:
        if store.dialect == "mysql":
            told = await _mariadb(connection)
        else:
            query = _SQLITE if store.dialect == "sqlite" else _POSTGRESQL
            told = list((await connection.exec_driver_sql(query)).scalars())
    return sorted(_plain(text) for text in told)


def _plain(text: str) -> str:
    """Without what does not count: a console drops comments, a restored dump writes a condition's casts otherwise."""
    text = re.sub(r"--.*", "", text)
    if text.startswith("CREATE INDEX"):
        text = re.sub(r"::(character varying|text)(\[\])?|[()]", "", text)
    return " ".join(text.split())


async def _mariadb(connection: AsyncConnection) -> list[str]:
    told = list((await connection.exec_driver_sql(_MARIADB_ROUTINES)).scalars())
    for table in await connection.run_sync(lambda sync: inspect(sync).get_table_names()):
        row = (await connection.exec_driver_sql(f"SHOW CREATE TABLE `{table}`")).one()
        told.append(re.sub(r" AUTO_INCREMENT=\d+", "", row[1]))
    return told
