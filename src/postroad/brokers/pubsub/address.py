"""Where Pub/Sub is: everything a broker URL can say."""

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from postroad.brokers._url import split, unknown_option
from postroad.errors import ConfigurationError

CLOUD: Final = "pubsub.googleapis.com:443"
_LONGEST_PUBLISH: Final = 20.0
"""The relay itself gives up after 30 seconds, and would send again what is still on its way."""
_PROJECT: Final = re.compile("([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_EMULATOR: Final = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:]+\]:[0-9]{1,5}")
_OPTIONS: Final = ("emulator", "monitoring", "publish_timeout")


@dataclass(frozen=True, slots=True)
class Address:
    project: str
    emulator: str = ""
    """Host and port; empty for the cloud."""
    publish_timeout: float = 10.0
    monitoring: bool = False
    """Whether Cloud Monitoring is asked how much waits."""

    @property
    def target(self) -> str:
        return self.emulator or CLOUD

    @property
    def told(self) -> str:
        return f"pubsub://{self.project}" + (f"?emulator={self.emulator}" if self.emulator else "")

    def topic(self, name: str) -> str:
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        return f"projects/{self.project}/subscriptions/{name}"

    def snapshot(self, name: str) -> str:
        return f"projects/{self.project}/snapshots/{name}"

    def schema(self, name: str) -> str:
        return f"projects/{self.project}/schemas/{name}"


def short(path: str) -> str:
    """The name at the end of projects/…/…/name."""
    return path.rpartition("/")[2]


def parse(url: str) -> Address:
    parts = split(url)
    if not _PROJECT.fullmatch(parts.netloc):
        raise ConfigurationError("The broker URL names no Google Cloud project. Write it as in pubsub://my-project.")
    if parts.path.strip("/"):
        raise ConfigurationError("The broker URL has a path, and Pub/Sub has none. Write it as in pubsub://my-project.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise unknown_option(name, parts.query, _OPTIONS)
    return Address(
        parts.netloc, _emulator(options), _seconds(options.get("publish_timeout", "10")), _monitoring(options)
    )


def _monitoring(options: dict[str, str]) -> bool:
    said = options.get("monitoring", "no")
    if said not in ("yes", "no"):
        raise ConfigurationError(f"The broker URL's option monitoring is {said!r}. It must be yes or no.")
    return said == "yes"


def _emulator(options: dict[str, str]) -> str:
    said, where = options.get("emulator"), "The broker URL's option emulator"
    if said is None:
        said, where = os.environ.get("PUBSUB_EMULATOR_HOST", ""), "PUBSUB_EMULATOR_HOST"
        if not said:
            return ""
    if not _EMULATOR.fullmatch(said):
        raise ConfigurationError(f"{where} is {said!r}. It must be host and port, such as 127.0.0.1:8085.")
    return said


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_PUBLISH:
        raise ConfigurationError(
            f"The broker URL's option publish_timeout is {text!r}. "
            f"It must be a number of seconds, more than 0 and at most {_LONGEST_PUBLISH:g}."
        )
    return seconds
