"""A TCP proxy that can cut a connection at a chosen byte or statement, or fall silent without closing it."""

import asyncio
import re
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

COMMIT: Final = re.compile(rb"(?<![A-Z ])COMMIT")
"""The statement alone: "READ COMMITTED" has a space before it."""
MARK: Final = re.compile(rb"= 'SENT',")
"""What a relay does once the broker has confirmed."""
ACKNOWLEDGED: Final = re.compile(rb"\x01..\0\0\0\x0d\0\x3c\0\x50", re.DOTALL)
"""RabbitMQ's basic.ack, a whole frame's beginning: from the server it confirms, from a client it settles."""
PRODUCE: Final = re.compile(rb"\0\0\0[\0-\x14].{4}\0\x08postroad", re.DOTALL)
COMMIT_OFFSETS: Final = re.compile(rb"\0\x08\0[\0-\x14].{4}\0\x08postroad", re.DOTALL)
"""Requests to Kafka, from their beginning: kind, version, number, and who asks."""
PUBLISHED: Final = re.compile(rb"\0\0\0..\x0a.[0-9]", re.DOTALL)
"""Pub/Sub's answer that begins with a message's id: nothing else that a relay is told does."""
ACKNOWLEDGE: Final = re.compile(rb"/subscriptions/[a-z.]+\x12")
"""To Pub/Sub, a subscription and then ids: where a lease is extended, the seconds come first."""

_LONGEST_NEEDLE: Final = 64
_PREPARED: Final = re.compile(rb"P.{4}(_pg3_[^\0]*)\0([^\0]*)\0", re.DOTALL)
"""How PostgreSQL is told a name for a statement; from then on only the name travels."""


class Side(Enum):
    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Side":
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


@dataclass(eq=False)
class CutAfter:
    """So many more bytes from one side, and not one more."""

    bytes: int
    sender: Side
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class CutAt:
    """When one side sends the statement: before the other gets it, or after it did, in place of its answer."""

    statement: re.Pattern[bytes]
    answered: bool
    sender: Side = Side.CLIENT
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


Trap = CutAfter | CutAt


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self.port = 0
        """On loopback, where it listens once it is started."""
        self.links: set[Link] = set()
        self.trap: Trap | None = None
        """For whichever connection runs into it first."""
        self.silent = False
        self.away = False
        self.turned_away = 0
        """Connections that somebody tried to make meanwhile."""
        self.cuts = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: End(Link(self), Side.CLIENT), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def connect(self, link: "Link") -> None:
        if self.away:
            self.turned_away += 1
            link.close()
            return
        try:
            await asyncio.get_running_loop().create_connection(lambda: End(link, Side.SERVER), *self._target)
        except OSError:
            link.close()

    def stall(self) -> None:
        """Nothing goes through any more, and nobody is told."""
        self.silent = True
        for link in self.links:
            link.listen(False)

    def resume(self) -> None:
        self.silent = False
        for link in self.links:
            link.listen(True)

    def leave(self) -> None:
        """As if the server had gone: every connection ends, and each new one at once."""
        self.away = True
        self.cut_all()

    def come_back(self) -> None:
        self.away = False

    def cut_all(self) -> int:
        found = list(self.links)
        for link in found:
            link.cut()
        return len(found)

    async def spring(self, trap: Trap, timeout: float) -> bool:
        """Sets the trap and takes it away again; whether anything ran into it."""
        self.trap = trap
        try:
            # Not `wait_for`, which may swallow the cancellation of its caller.
            async with asyncio.timeout(timeout):
                await trap.sprung.wait()
        except TimeoutError:
            pass
        finally:
            self.trap = None
        return trap.sprung.is_set()

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.close()
        await asyncio.sleep(0)


class Link:
    """One client's connection and the one that was made for it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._ends: dict[Side, asyncio.Transport] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._awaiting_answer: CutAt | None = None
        self._tails = dict.fromkeys(Side, b"")
        self._named: set[bytes] = set()

    def joined(self, side: Side, transport: asyncio.Transport) -> None:
        self._ends[side] = transport
        if self._closed:
            transport.abort()
        elif side is Side.CLIENT:
            self._proxy.links.add(self)
            transport.pause_reading()
            self._connecting = asyncio.create_task(self._proxy.connect(self))
        else:
            self.listen(not self._proxy.silent)

    def listen(self, on: bool) -> None:
        if len(self._ends) < 2:
            return
        for transport in self._ends.values():
            if not transport.is_closing():
                transport.resume_reading() if on else transport.pause_reading()

    def passing(self, sender: Side, data: bytes) -> None:
        if self._closed:
            return
        if self._awaiting_answer and sender is not self._awaiting_answer.sender:
            # The server has done it, and the client will never know; or the other way round.
            self._spring(self._awaiting_answer)
            return
        seen = self._notice(sender, data)
        match self._proxy.trap:
            case CutAfter() as trap if trap.sender is sender and not trap.sprung.is_set():
                if len(data) >= trap.bytes:
                    self._forward(sender, data[: trap.bytes])
                    self._spring(trap)
                    return
                trap.bytes -= len(data)
            case CutAt() as trap if seen and not trap.sprung.is_set():
                if not trap.answered:
                    self._spring(trap)
                    return
                self._awaiting_answer = trap
                self._proxy.trap = None
        self._forward(sender, data)

    def cut(self) -> None:
        """Half of the time with a reset, else with an end: drivers tell them apart."""
        self._proxy.cuts += 1
        for transport in self._ends.values():
            if self._proxy.cuts % 2 and (sock := transport.get_extra_info("socket")):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        self._forget()

    def close(self) -> None:
        for transport in self._ends.values():
            transport.close()
        self._forget()

    def _forget(self) -> None:
        self._closed = True
        self._proxy.links.discard(self)

    def _spring(self, trap: Trap) -> None:
        self.cut()
        trap.sprung.set()

    def _forward(self, sender: Side, data: bytes) -> None:
        self._ends[sender.other].write(data)

    def _notice(self, sender: Side, data: bytes) -> bool:
        """Whether the statement that the trap waits for passes; names of prepared ones are always noted."""
        window = self._tails[sender] + data
        self._tails[sender] = window[-_LONGEST_NEEDLE:]
        if sender is Side.CLIENT:
            for name, statement in _PREPARED.findall(data):
                if MARK.search(statement):
                    self._named.add(b"\0" + name + b"\0")
        trap = self._proxy.trap
        if not isinstance(trap, CutAt) or trap.sender is not sender:
            return False
        if trap.statement is MARK and any(name in data for name in self._named):
            return True
        # What ended in an earlier piece was noticed then.
        return any(match.end() > len(window) - len(data) for match in trap.statement.finditer(window))


class End(asyncio.Protocol):
    def __init__(self, link: Link, side: Side) -> None:
        self._link, self._side = link, side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link.joined(self._side, transport)

    def data_received(self, data: bytes) -> None:
        self._link.passing(self._side, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.close()
