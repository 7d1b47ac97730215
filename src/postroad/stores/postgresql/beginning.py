"""BEGIN and the first statement of a transaction in one round trip.

psycopg sends BEGIN by itself and waits for the answer. Its pipelines would save that, but take longer than they save.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.waiting import Ready, Wait
from sqlalchemy.exc import DBAPIError

from postroad.stores.base import Result
from postroad.stores.queries import parameters, restyle

Connection = psycopg.AsyncConnection[Any]
_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_numbered = cache(lambda sql: restyle(sql, "numbered").encode())
_row_of: Callable[[tuple[str, ...]], Callable[..., Any]] = cache(partial(namedtuple, "Row"))
_prepared: WeakKeyDictionary[Connection, dict[str, bytes]] = WeakKeyDictionary()
"""The statements that a connection knows, and their names there."""


async def begin_with(connection: Connection, sql: str, values: Mapping[str, str | None]) -> Result:
    """On an idle connection: begins a transaction with a statement that is given texts, and returns texts."""
    encoding = connection.info.encoding  # not everybody's is UTF-8, and the other statements use it too
    try:
        texts = [values[parameter] for parameter in parameters(sql)]
        given = [None if text is None else text.encode(encoding) for text in texts]
        try:
            return await _begin_with(connection, sql, given)
        except InvalidSqlStatementName:
            # It is not prepared any more: after some roll-backs psycopg lets the server forget all that is.
            _prepared.pop(connection, None)
            await connection.rollback()
            return await _begin_with(connection, sql, given)
    except psycopg.Error as error:
        raise DBAPIError(sql, None, error, hide_parameters=True, connection_invalidated=connection.closed) from error


async def _begin_with(connection: Connection, sql: str, given: Sequence[bytes | None]) -> Result:
    known = _prepared.setdefault(connection, {})
    name = known.get(sql) or b"postroad_%d" % len(known)
    pgconn, sent = connection.pgconn, 2
    pgconn.enter_pipeline_mode()
    try:
        pgconn.send_query_params(_BEGIN, None)
        if sql not in known:
            pgconn.send_prepare(name, _numbered(sql))
            sent += 1
        pgconn.send_query_prepared(name, given)
        pgconn.pipeline_sync()
        *before, last = await connection.wait(_answers(pgconn, sent))
        pgconn.exit_pipeline_mode()
    except BaseException:
        pgconn.finish()  # with answers still under way it is of no use to anybody
        raise
    for result in before:
        _check(result, connection)
    known[sql] = name  # also if it fails now: what is prepared outlives a roll-back
    _check(last, connection)
    return Result(_rows(last, connection), last.command_tuples or 0)


def _rows(result: pq.abc.PGresult, connection: Connection) -> Sequence[Any]:
    if result.status == pq.ExecStatus.COMMAND_OK:
        return ()
    columns = range(result.nfields)
    encoding = connection.info.encoding
    row_of = _row_of(tuple((result.fname(column) or b"").decode(encoding) for column in columns))
    values = ([result.get_value(row, column) for column in columns] for row in range(result.ntuples))
    return [row_of(*(None if value is None else value.decode(encoding) for value in row)) for row in values]


def _answers(pgconn: pq.abc.PGconn, sent: int) -> PQGen[list[pq.abc.PGresult]]:
    """One for each command that was sent, in their order. Counted: a broken connection has none for ever."""
    while pgconn.flush():
        ready = yield Wait.RW  # None if we are cancelled here: psycopg then cancels there, and goes on with us
        if ready and ready & Ready.R:
            pgconn.consume_input()
    answers: list[pq.abc.PGresult] = []
    for _ in range(sent):
        answers += yield from generators.fetch_many(pgconn)
    yield from generators.fetch_many(pgconn)  # that they are all
    if len(answers) < sent:
        raise psycopg.OperationalError("the connection is lost")
    return answers


def _check(result: pq.abc.PGresult, connection: Connection) -> None:
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise error_from_result(result, encoding=connection.info.encoding)
