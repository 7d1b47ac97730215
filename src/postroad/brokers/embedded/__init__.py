"""A durable broker in a SQLite file, for several processes at once; or in memory, for one.

`embedded:` is in memory. `embedded:road.db` and `embedded:///srv/road.db` are files.

A message is on the disk before it is confirmed. It stays until every subscription of its topic has settled it
and the longest retention among them has passed; what is not settled is never removed. The first subscription
of a topic begins with everything published so far, later ones begin when they are created.

A receiver's lease covers all it holds. It lasts the subscription's ack deadline and is extended from a thread
while the process lives; when it runs out, everything goes to other receivers as a further attempt.
"""

from pathlib import Path

from postroad.brokers.embedded.broker import EmbeddedBroker
from postroad.clock import Clock
from postroad.errors import ConfigurationError

__all__ = ["EmbeddedBroker", "connect"]


def connect(url: str, *, clock: Clock) -> EmbeddedBroker:
    """Opens nothing yet: the file is created when it is first used."""
    path = url.removeprefix("embedded:")
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise ConfigurationError(
                "The broker URL names a host, but the embedded broker is a file. "
                "Write embedded:road.db for a relative path, embedded:///srv/road.db for an absolute one."
            )
    return EmbeddedBroker(Path(path) if path else None, clock)
