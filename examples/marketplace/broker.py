"""The broker's address, with the frozen names on it where it is a RabbitMQ."""

import os
import tempfile
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

LAYOUT: Final = Path(__file__).with_name("layout.toml")
_SCHEMES: Final = ("amqp:", "amqps:", "rabbitmq:", "rabbitmqs:")


def with_layout(url: str | None, payment_time: timedelta) -> str | None:
    """The time orders have is the delay queue's time to live, so another time needs a layout of its own."""
    url = url or os.environ.get("BROKER_URL")
    if url is None or not is_rabbitmq(url) or "layout=" in url:
        return url
    path = layout_for(payment_time)
    return f"{url}{'&' if '?' in url else '?'}layout={quote(str(path))}"


def is_rabbitmq(url: str) -> bool:
    return url.startswith(_SCHEMES)


def layout_for(payment_time: timedelta) -> Path:
    frozen = LAYOUT.read_text(encoding="utf-8")
    usual = tomllib.loads(frozen)["delayed"]["ORDER_TIMEOUT"]["seconds"]
    seconds = payment_time.total_seconds()
    if seconds == usual:
        return LAYOUT
    path = _own_folder() / f"{seconds:g}s.toml"
    # Put there in one go: another process may read it at this moment, and half a layout is a valid one too.
    draft = path.with_suffix(f".{uuid4().hex}")
    draft.write_text(frozen.replace(f"seconds = {usual}", f"seconds = {seconds:g}"), encoding="utf-8")
    draft.replace(path)
    return path


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"marketplace-layouts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} is somebody else's. Remove it, or set TMPDIR to a folder of your own.")
    return folder
