"""The brokers that are put under fire: one entry each."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from proof.chaos.ledger import Appearance


@dataclass(frozen=True)
class Wire:
    name: str
    url: Callable[[Path], str]
    """Of a new broker; the folder is on the disk that will be full."""
    appearances: Callable[[Path], Sequence[Appearance]]
    """Every message the broker has taken, in its order."""


def _embedded_file(folder: Path) -> Path:
    return folder / "broker.db"


def _embedded_appearances(folder: Path) -> list[Appearance]:
    with closing(sqlite3.connect(_embedded_file(folder))) as connection:
        rows = connection.execute("SELECT attributes FROM message ORDER BY id").fetchall()
    decode = msgspec.json.Decoder(dict[str, str]).decode
    found = (decode(attributes) for (attributes,) in rows)
    return [Appearance(one["event_id"], one["aggregate_id"], int(one["version"])) for one in found]


EMBEDDED: Final = Wire("embedded", lambda folder: f"embedded:{_embedded_file(folder)}", _embedded_appearances)
WIRES: Final = (EMBEDDED,)
