"""Where Kafka is and how it is to be used: everything a broker URL can say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from postroad.brokers._url import split, unknown_option, unreadable
from postroad.errors import ConfigurationError

ANSWER_SECONDS: Final = 5.0
"""What a question to Kafka may take."""
_LONGEST_PUBLISH: Final = 15.0
"""A batch may take half as long again, and the relay itself gives up after 30 seconds."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Address:
    servers: tuple[str, ...] = ("localhost:9092",)
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    cafile: str = ""
    """Certificates to trust instead of the system's."""
    mechanism: str = "SCRAM-SHA-512"
    """How user and password are shown to Kafka."""
    partitions: int = 6
    """Of every topic; one with another count is not used, because its keys would have moved. 0: of any count."""
    replication: int = -1
    """Of topics that are created; by default as the server has it."""
    publish_timeout: float = 10.0
    session_timeout: float = 10.0
    """Seconds after which the partitions of a dead worker go to another."""
    ahead: int = 5_000
    """How far a partition is read beyond its first unsettled message, and how many messages wait here in all."""

    @property
    def told(self) -> str:
        """Without secrets."""
        return f"{'kafkas' if self.tls else 'kafka'}://{','.join(self.servers)}/"

    def client(self) -> dict[str, Any]:
        """What librdkafka must know to reach it."""
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(self.servers),
            "client.id": "postroad",
            # After an outage nobody waits ten seconds for the next try to connect.
            "reconnect.backoff.max.ms": 1_000,
            "socket.connection.setup.timeout.ms": int(ANSWER_SECONDS * 1_000),
            "security.protocol": ("SASL_" if self.user else "") + ("SSL" if self.tls else "PLAINTEXT"),
        }
        if self.user:
            login = {"sasl.username": self.user, "sasl.password": self.password, "sasl.mechanism": self.mechanism}
            settings.update(login)
        if self.cafile:
            settings["ssl.ca.location"] = self.cafile
        return settings


def parse(url: str) -> Address:
    """Raises ConfigurationError, which never shows the URL: it may carry a password."""
    parts = split(url)
    if "@" in parts.fragment:
        raise unreadable()  # else a part of a password would be shown as the port
    if parts.path not in ("", "/"):
        raise ConfigurationError("The broker URL has a path, and Kafka has none. Write it as in kafka://host:9092/.")
    login, _, servers = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return Address(
        servers=tuple(_server(server) for server in servers.split(",")) if servers else ("localhost:9092",),
        user=unquote(user),
        password=unquote(password),
        tls=parts.scheme == "kafkas",
        **_options(parts.query),
    )


def _server(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    if not host or not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65_536):
        raise ConfigurationError("The broker URL names a server without host or with a bad port. Write host:9092.")
    return f"{host}:{port}"


def _options(query: str) -> Mapping[str, Any]:
    found = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _READERS:
            raise unknown_option(name, query, _READERS)
        try:
            found[name] = _READERS[name](text)
        except ValueError as error:
            raise ConfigurationError(f"The broker URL's option {name} is {text!r}. It must be {error}.") from None
    return found


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _partitions(text: str) -> int:
    try:
        return 0 if text == "any" else _whole(1, 10_000)(text)
    except ValueError as error:
        raise ValueError(f"{error}, or any") from None


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not least <= seconds <= most:
            raise ValueError(f"a number of seconds from {least:g} to {most:g}")
        return seconds

    return read


def _mechanism(text: str) -> str:
    if text not in _MECHANISMS:
        raise ValueError(f"one of {', '.join(_MECHANISMS)}")
    return text


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "partitions": _partitions,
    "replication": _whole(1, 100),
    "publish_timeout": _seconds(0.1, _LONGEST_PUBLISH),
    "session_timeout": _seconds(1.0, 300.0),
    "ahead": _whole(1, 1_000_000),
    "mechanism": _mechanism,
    "cafile": str,
}
