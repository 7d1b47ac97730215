"""A server of our own, and a proxy in front of it for each process, so that a fault can be aimed."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.chaos.proxy import Proxy
from proof.chaos.servers import Server


@dataclass(frozen=True)
class Access:
    server: Server
    url: str
    """Straight to the server."""
    doors: Mapping[str, Proxy]
    """By the name of the process; some may have none, because they never come."""

    def url_of(self, process: str) -> str:
        if process not in self.doors:
            return self.url
        return self.url.replace(f"127.0.0.1:{self.server.port}", f"127.0.0.1:{self.doors[process].port}")


@asynccontextmanager
async def served(name: str, folder: Path, processes: Sequence[str]) -> AsyncIterator[Access]:
    server = Server(name, folder)
    doors = {process: Proxy("127.0.0.1", server.entry(number)) for number, process in enumerate(processes)}
    try:
        for door in doors.values():
            await door.start()
        server.doors = [door.port for door in doors.values()]
        await server.create()
        await server.start()
        yield Access(server, server.url, doors)
    finally:
        for door in doors.values():
            await door.aclose()
        await server.stop()
