"""The broker's address, with the frozen names on it where it is a RabbitMQ."""

import os
import tempfile
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Final

LAYOUT: Final = Path(__file__).with_name("layout.toml")
_SCHEMES: Final = ("amqp:", "amqps:", "rabbitmq:", "rabbitmqs:")


def with_layout(url: str | None, payment_time: timedelta) -> str | None:
    """The time orders have is the delay queue's time to live, so another time needs a layout of its own."""
    url = url or os.environ.get("BROKER_URL")
    if url is None or not is_rabbitmq(url) or "layout=" in url:
        return url
    path = layout_for(payment_time)
    return f"{url}{'&' if '?' in url else '?'}layout={path}"


def is_rabbitmq(url: str) -> bool:
    return url.startswith(_SCHEMES)


def layout_for(payment_time: timedelta) -> Path:
    frozen = LAYOUT.read_text(encoding="utf-8")
    usual = tomllib.loads(frozen)["delayed"]["ORDER_TIMEOUT"]["seconds"]
    seconds = payment_time.total_seconds()
    if seconds == usual:
        return LAYOUT
    path = Path(tempfile.gettempdir()) / f"marketplace-layout-{os.getuid()}-{seconds:g}s.toml"
    path.write_text(frozen.replace(f"seconds = {usual}", f"seconds = {seconds:g}"), encoding="utf-8")
    return path
