"""Where RabbitMQ is and how it is to be used: everything a broker URL can say."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import pika

from postroad.brokers._url import port_of, split, unknown_option, unreadable
from postroad.errors import ConfigurationError

_TLS_SCHEMES: Final = frozenset({"amqps", "rabbitmqs"})
CONNECT_SECONDS: Final = 5.0
_LONGEST_PUBLISH: Final = 20.0
"""The relay itself gives up after 30 seconds, and would send again what is still on its way."""
MOST_PREFETCHED: Final = 65_535
"""The field on the wire has sixteen bits."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str = "localhost"
    port: int = 5672
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: bool = False
    cafile: str = ""
    """Certificates to trust instead of the system's."""
    queue_type: str = "classic"
    """Or quorum. It holds for every queue that is created through this URL."""
    single_active_consumer: bool = True
    """Of several workers of a group one receives and the others stand by: else a key's order could not be kept."""
    prefetch: int = 20
    """The most messages that a receiver holds at once."""
    heartbeat: int = 10
    publish_timeout: float = 10.0
    management: str = ""
    """The management API, such as http://host:15672; by default on the same host at its usual port."""
    layout: str = ""
    """A TOML file with names for exchanges and queues, where they are given from outside."""

    @property
    def told(self) -> str:
        """Without secrets."""
        vhost = "" if self.vhost == "/" else self.vhost
        return f"{'amqps' if self.tls else 'amqp'}://{self.host}:{self.port}/{vhost}"

    @property
    def management_url(self) -> str:
        if self.management:
            return self.management.rstrip("/")
        return f"https://{self.host}:15671" if self.tls else f"http://{self.host}:15672"

    def tls_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.cafile or None)

    def parameters(self, purpose: str) -> pika.ConnectionParameters:
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.user, self.password),
            ssl_options=pika.SSLOptions(self.tls_context(), self.host) if self.tls else None,
            heartbeat=self.heartbeat,
            # Silence from a server that is out of memory is no reason to leave: every publish has its own time limit.
            blocked_connection_timeout=None,
            socket_timeout=CONNECT_SECONDS,
            stack_timeout=CONNECT_SECONDS,
            client_properties={"connection_name": f"postroad, to {purpose}"},
        )


def parse(url: str) -> Address:
    """Raises ConfigurationError, which never shows the URL: it may carry a password."""
    parts = split(url)
    port = port_of(parts)
    if "@" in parts.path + parts.fragment:
        raise unreadable()  # else a part of a password would be shown as the port or the virtual host
    tls = parts.scheme in _TLS_SCHEMES
    return Address(
        host=parts.hostname or "localhost",
        port=port or (5671 if tls else 5672),
        vhost=unquote(parts.path[1:]) or "/",
        user=unquote(parts.username) if parts.username else "guest",
        password=unquote(parts.password) if parts.password else "guest",
        tls=tls,
        **_options(parts.query),
    )


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


def _queue_type(text: str) -> str:
    if text not in ("classic", "quorum"):
        raise ValueError("classic or quorum")
    return text


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_PUBLISH:
        raise ValueError(f"a number of seconds, more than 0 and at most {_LONGEST_PUBLISH:g}")
    return seconds


def _http(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an address that begins with http:// or https://")
    return text


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "queue_type": _queue_type,
    "single_active_consumer": _truth,
    "prefetch": _whole(1, MOST_PREFETCHED),
    # Shorter ones would cut healthy connections; the server itself allows none above this.
    "heartbeat": _whole(2, 65_535),
    "publish_timeout": _seconds,
    "management": _http,
    "cafile": str,
    "layout": str,
}
