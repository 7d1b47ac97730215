"""RabbitMQ's management API: what AMQP itself cannot tell. Its counts are a few seconds old."""

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from postroad.brokers.base import Concern
from postroad.brokers.rabbitmq.address import Address
from postroad.errors import BrokerError, BrokerUnavailable

_PATIENCE: Final = 3.0
"""Less than the doctor has for a check: a port behind which nobody answers must not take all of it."""
_NOT_FOUND: Final = 404


class Management:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._vhost = quote(address.vhost, safe="")

    def queue(self, name: str) -> dict[str, Any] | None:
        """What is known of a queue; None if it is not there."""
        found = self._get(f"/api/queues/{self._vhost}/{quote(name, safe='')}")
        return found if isinstance(found, dict) else None

    def bindings(self) -> list[dict[str, Any]]:
        found = self._get(f"/api/bindings/{self._vhost}")
        return found if isinstance(found, list) else []

    def channels(self) -> list[dict[str, Any]]:
        columns = "name,user,confirm,transactional,message_stats.publish,message_stats.confirm"
        found = self._get(f"/api/vhosts/{self._vhost}/channels?{urlencode({'columns': columns})}")
        return found if isinstance(found, list) else []

    def delay_queues(self, *names: str) -> list[str]:
        """The delay queues that lead to these exchanges and queues."""
        pattern = "|".join(f"{re.escape(name)}\\.delay\\." for name in names)
        query = urlencode(
            {"page": 1, "page_size": 500, "use_regex": "true", "columns": "name", "name": f"^({pattern})"}
        )
        found = self._get(f"/api/queues/{self._vhost}?{query}") or {}
        return [str(queue["name"]) for queue in found.get("items", ())]

    def _get(self, path: str) -> Any:
        """Blocks: to be called from a thread."""
        address = self._address
        url = address.management_url
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        request = urllib.request.Request(url + path, headers={"Authorization": f"Basic {login}"})
        try:
            context = address.tls_context() if url.startswith("https:") else None
            with urllib.request.urlopen(request, timeout=_PATIENCE, context=context) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
                raise BrokerError(
                    f"RabbitMQ's management API at {url} answers {error.code} to user {address.user!r}. "
                    "Give the user the tag monitoring."
                ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise BrokerUnavailable(
                f"RabbitMQ's management API at {url} cannot be reached ({reason}). Enable the plugin "
                "rabbitmq_management, or say in the broker URL where it is: ?management=http://host:15672"
            ) from None


def unconfirmed(channels: Iterable[Mapping[str, Any]], user: str) -> list[Concern]:
    """Those of our user that publish without asking for confirms. Postroad always asks; another program may not."""
    found = []
    for one in channels:
        counts = one.get("message_stats", {})
        # Of a young channel the mode is told late, its counts are not.
        asks = one.get("confirm") or one.get("transactional") or counts.get("confirm")
        if one.get("user") == user and counts.get("publish") and not asks:
            found.append(
                Concern(
                    "confirms",
                    f"A program publishes as {user} through the channel {one['name']} without asking for confirms: "
                    "what RabbitMQ loses of that, nobody is told.",
                    "Let it write its events through Postroad, or switch on publisher confirms there.",
                )
            )
    return found
