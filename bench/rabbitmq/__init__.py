"""Through RabbitMQ, beside what the Python clients can do by hand, and beside a peer."""

from bench.common import Figure, Scale, service
from bench.rabbitmq import consuming, latency, relaying
from tests.support.rabbitmq import fresh_vhost, with_options


async def measure(scale: Scale, server: str) -> list[Figure]:
    figures = []
    for part, options in (
        (relaying, {"queue_type": "quorum"}),
        (relaying, {"queue_type": "classic"}),
        (consuming, {}),
        (latency, {}),
    ):
        with fresh_vhost(service("rabbitmq")) as url:
            figures += await part.measure(scale, server, with_options(url, **options))
    return figures
