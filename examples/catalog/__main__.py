"""The catalog with its page: both services in one process, or one of them.

Without more they use two SQLite files and the embedded broker. A service that runs alone takes DATABASE_URL, and both
BROKER_URL.
"""

import argparse
import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import uvicorn
from psycopg import sql

from examples.catalog.api import create_app
from examples.catalog.events import CANARY
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer
from postroad import logs
from postroad.errors import PostroadError

FIRST_VIDEOS = (
    ("Rain on a tin roof", "Ten hours of it, recorded in a shed.", 36_000_000_000),
    ("How bread rises", "Yeast, time, and a warm corner of the kitchen.", 754_000_000),
    ("The last night train", "Vienna to Venice, seen from the window.", 5_460_000_000),
    ("A clock, taken apart", "And, with three parts left over, put together again.", 1_380_000_000),
)
UPLOADER = "d6a8b0c1-4567-49ab-8ef0-123456789012"


def main() -> None:
    arguments = _arguments()
    logs.configure("INFO")
    try:
        writer, reader = _services(arguments)
        if writer is not None:
            asyncio.run(_first_day(writer, reader))
    except (PostroadError, psycopg.Error) as error:
        raise SystemExit(f"The catalog cannot open: {error}") from None
    print(
        f"The catalog is open: http://{arguments.host}:{arguments.port}/   API: /docs   (Ctrl-C closes it)", flush=True
    )
    app = create_app(writer, reader, run=not arguments.api_only, grpc_address=arguments.grpc)
    # Requests have two seconds, calls two, handlers three: within the ten that Cloud Run gives.
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_config=None, timeout_graceful_shutdown=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.catalog", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
    parser.add_argument("--only", choices=["write", "read"], help="one service instead of both")
    parser.add_argument(
        "--postgresql", metavar="URL", help="an administrator's address: both services there, by roles.sql"
    )
    parser.add_argument("--broker-url")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="serve gRPC there, too")
    parser.add_argument("--data", type=Path, default=Path("build/catalog"), help="where the files are kept")
    parser.add_argument("--api-only", action="store_true", help="relay and consumer run elsewhere")
    return parser.parse_args()


def _services(arguments: argparse.Namespace) -> tuple[Writer | None, Reader | None]:
    data: Path = arguments.data
    data.mkdir(parents=True, exist_ok=True)
    writes, reads = f"sqlite:///{data / 'write.db'}", f"sqlite:///{data / 'read.db'}"
    if arguments.postgresql:
        writes, reads = with_roles(arguments.postgresql)
    elif arguments.only:
        writes = reads = os.environ.get("DATABASE_URL") or (writes if arguments.only == "write" else reads)
    broker = arguments.broker_url or os.environ.get("BROKER_URL") or f"embedded:{data / 'broker.db'}"
    return (
        Writer(writes, broker, CANARY if arguments.only else None) if arguments.only != "read" else None,
        Reader(reads, broker) if arguments.only != "write" else None,
    )


def with_roles(administrator: str) -> tuple[str, str]:
    """A database with schemas and roles as roles.sql has them; the addresses of the two services."""
    parts = urlsplit(administrator)
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:
        name = parts.path.strip("/")
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with psycopg.connect(administrator) as connection:
        connection.execute(Path(__file__).with_name("roles.sql").read_text(encoding="utf-8"))
    host = parts.netloc.rpartition("@")[2]
    written, read = (parts._replace(netloc=f"{role}@{host}").geturl() for role in ("catalog_writer", "catalog_reader"))
    return written, read


async def _first_day(writer: Writer, reader: Reader | None) -> None:
    """Something to look at."""
    if reader is not None:
        await reader.prepare()
        await reader.road.broker.apply(reader.road.topology)
        await reader.road.aclose()
    await writer.prepare()
    if not await writer.latest(1):
        for title, description, duration in FIRST_VIDEOS:
            facts = {"uploader_id": UPLOADER, "title": title, "description": description, "duration_micros": duration}
            states = {"status": "published", "media_status": "ready", "analysis_status": "ready"}
            await writer.create(facts | states)
    await writer.road.aclose()


if __name__ == "__main__":
    main()
