"""A very small HTTP server: GET and HEAD of a few paths, one answer for each connection. For more, mount the ASGI
application in a server of yours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from postroad.errors import ConfigurationError

_PATIENCE: Final = 10.0
_LONGEST_REQUEST: Final = 16_384
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


Answering = Callable[[str], Awaitable[Answer]]


def address_of(text: str) -> tuple[str, int]:
    """`9464` is on this machine only; `0.0.0.0:9464` is for others too. Raises ConfigurationError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > len(str(_HIGHEST_PORT)) or int(port) > _HIGHEST_PORT:
        raise ConfigurationError(f"{text!r} is no port. Write --http 9464, or --http 0.0.0.0:9464 for other machines.")
    return host.strip("[]") or "127.0.0.1", int(port)


@asynccontextmanager
async def serve(answering: Answering, host: str, port: int) -> AsyncIterator[int]:
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await _converse(answering, reader, writer)
        finally:
            connections.discard(task)

    try:
        server = await asyncio.start_server(connected, host, port, limit=_LONGEST_REQUEST)
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on ({error.strerror}). Give --http another port."
        ) from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _converse(answering: Answering, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # Whoever says nothing, or never stops, must not keep a connection for ever.
        async with asyncio.timeout(_PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        writer.write(await _response(answering, head))
        async with asyncio.timeout(_PATIENCE):
            await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        pass
    finally:
        writer.close()


async def _response(answering: Answering, head: str) -> bytes:
    method, _, rest = head.partition("\r\n")[0].partition(" ")
    target = rest.rpartition(" ")[0]
    if method not in ("GET", "HEAD"):
        answer = Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"Only GET.\n")
    else:
        answer = await answering(urlsplit(target).path)
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.text)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "\r\n"]).encode() + (b"" if method == "HEAD" else answer.text)
