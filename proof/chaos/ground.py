"""What they stand on, all of which can give way: the servers, the doors in front of them, the disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.chaos.access import Access, served
from proof.chaos.brokers import Wire
from proof.chaos.disk import Disk, small_disk
from proof.chaos.fleet import PROCESSES, RELAYS, WORKERS


@dataclass(frozen=True)
class Ground:
    wire: Wire
    database_url: str
    database: Access | None
    broker_url: str
    broker: Access | None
    disk: Disk | None
    """None if nothing is written to it."""

    def urls_of(self, process: str) -> tuple[str, str]:
        """Of database and broker, by way of the process's own doors."""
        return (
            self.database.url_of(process) if self.database else self.database_url,
            self.wire.url(self.broker.url_of(process)) if self.broker else self.broker_url,
        )


async def _entered(stack: AsyncExitStack, access: AbstractAsyncContextManager[Access] | None) -> Access | None:
    return await stack.enter_async_context(access) if access else None


@asynccontextmanager
async def prepared(store: str, wire: Wire, folder: Path) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        disk = small_disk(folder / "disk")
        stack.callback(disk.close)
        async with asyncio.TaskGroup() as group:
            database_starts = group.create_task(
                _entered(stack, served(store, folder, PROCESSES) if store != "sqlite" else None)
            )
            broker_starts = group.create_task(
                _entered(stack, served(wire.name, folder, RELAYS + WORKERS) if wire.served else None)
            )
        database, broker = database_starts.result(), broker_starts.result()
        yield Ground(
            wire=wire,
            database_url=database.url if database else f"sqlite:///{disk.folder / 'bank.db'}",
            database=database,
            broker_url=wire.url(broker.url if broker else disk.folder),
            broker=broker,
            disk=None if database and broker else disk,
        )
