"""BEGIN and the first statement of a transaction in one round trip.

psycopg sends BEGIN by itself and waits for the answer. Its pipelines would save that, but take longer than they save.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import pq
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.waiting import Ready, Wait
from sqlalchemy.exc import DBAPIError

from postroad.stores.queries import parameters, restyle

Connection = psycopg.AsyncConnection[Any]
_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_numbered = cache(lambda sql: restyle(sql, "numbered").encode())
_prepared: WeakKeyDictionary[Connection, dict[str, bytes]] = WeakKeyDictionary()
"""The statements that a connection knows, and their names there."""


async def begin_and_change(connection: Connection, sql: str, values: Mapping[str, str | None]) -> int:
    """On an idle connection: begins a transaction with a statement that returns no rows; how many it has changed."""
    given = [None if (value := values[parameter]) is None else value.encode() for parameter in parameters(sql)]
    try:
        try:
            return await _begin_and_change(connection, sql, given)
        except InvalidSqlStatementName:
            # It is not prepared any more: after some roll-backs psycopg lets the server forget all that is.
            _prepared.pop(connection, None)
            await connection.rollback()
            return await _begin_and_change(connection, sql, given)
    except psycopg.Error as error:
        raise DBAPIError(sql, None, error, hide_parameters=True, connection_invalidated=connection.closed) from error


async def _begin_and_change(connection: Connection, sql: str, given: Sequence[bytes | None]) -> int:
    known = _prepared.setdefault(connection, {})
    name = known.get(sql) or b"postroad_%d" % len(known)
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    pgconn.send_query_params(_BEGIN, None)
    if sql not in known:
        pgconn.send_prepare(name, _numbered(sql))
    pgconn.send_query_prepared(name, given)
    pgconn.pipeline_sync()
    *before, changed = await connection.wait(_results(pgconn))
    for result in before:
        _check(result)
    known[sql] = name  # also if it fails now: what is prepared outlives a roll-back
    _check(changed)
    return changed.command_tuples or 0


def _results(pgconn: pq.abc.PGconn) -> Generator[Wait, Ready | int, Sequence[pq.abc.PGresult]]:
    """What the commands that were sent have led to, in their order."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    results = []
    while True:
        while pgconn.is_busy():
            if (yield Wait.R):
                pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            continue  # the end of one command's
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            break
        results.append(result)
    pgconn.exit_pipeline_mode()
    return results


def _check(result: pq.abc.PGresult) -> None:
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise error_from_result(result)
