"""Through Pub/Sub, here its emulator, beside what Google's clients can do by hand."""

from bench.common import Figure, Scale, service
from bench.pubsub import consuming, relaying
from bench.rebuild import rebuild_beside_live
from tests.support.pubsub import fresh_project


async def measure(scale: Scale, server: str) -> list[Figure]:
    figures = []
    for part in (relaying, consuming):
        figures += await part.measure(scale, server, fresh_project(service("pubsub")))
    url = fresh_project(service("pubsub"))
    return [*figures, await rebuild_beside_live(scale, server, url, "Pub/Sub, rebuild / live")]
