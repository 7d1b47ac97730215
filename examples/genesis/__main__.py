"""The studio with its page, and the three capabilities in processes of their own.

Without more it uses a SQLite file and the embedded broker; DATABASE_URL and BROKER_URL take others. A database that is
missing on a PostgreSQL server is created.
"""

import argparse
import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import uvicorn
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from examples.genesis.api import create_app
from examples.genesis.studio import WORKERS, Studio
from postroad import logs
from postroad.errors import PostroadError


def main() -> None:
    arguments = _arguments()
    _choose_addresses(arguments.data)
    logs.configure("INFO")
    logging.getLogger("uvicorn.access").setLevel("WARNING")
    try:
        studio = Studio()
        asyncio.run(_open(studio))
    except PostroadError as error:
        raise SystemExit(f"The studio cannot open: {error}") from None
    with _workers() if not arguments.api_only else nullcontext():
        print(
            f"The studio is open: http://{arguments.host}:{arguments.port}/   API: /docs   (Ctrl-C closes it)",
            flush=True,
        )
        app = create_app(studio, run=not arguments.api_only)
        # The page holds a stream open for ever: closing must not wait for it.
        uvicorn.run(app, host=arguments.host, port=arguments.port, log_config=None, timeout_graceful_shutdown=3)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.genesis", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--data", type=Path, default=Path("build/genesis"), help="where the two files are kept")
    parser.add_argument("--api-only", action="store_true", help="relay, guide and capabilities run elsewhere")
    return parser.parse_args()


def _choose_addresses(data: Path) -> None:
    """In the environment, where the workers find them too."""
    if "DATABASE_URL" not in os.environ or "BROKER_URL" not in os.environ:
        data.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DATABASE_URL", f"sqlite:///{data / 'genesis.db'}")
    os.environ.setdefault("BROKER_URL", f"embedded:{data / 'broker.db'}")


async def _open(studio: Studio) -> None:
    if studio.road.store.dialect == "postgresql":
        await _create_database(studio.road.store.url)
    await studio.prepare()
    await studio.aclose()


async def _create_database(url: URL) -> None:
    """Unless it is there."""
    server = create_async_engine(
        url.set(drivername="postgresql+psycopg", database="postgres"), isolation_level="AUTOCOMMIT"
    )
    with suppress(OSError, SQLAlchemyError):  # what is wrong with the server is told by whoever needs it next
        async with server.connect() as connection:
            name = connection.dialect.identifier_preparer.quote(str(url.database))
            await connection.exec_driver_sql(f"CREATE DATABASE {name}")
    await server.dispose()


@contextmanager
def _workers() -> Iterator[None]:
    """Outliner, Worldbuilder and Character. They end with us."""
    # uvicorn raises the signal that stopped it once more, and SIGTERM's own way would end us before them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    command = [sys.executable, "-m", "postroad", "worker", "examples.genesis.road:road", "--log-level", "warning"]
    processes = [subprocess.Popen([*command, "--group", name]) for name in WORKERS]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    main()
