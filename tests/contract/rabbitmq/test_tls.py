"""The same over TLS, which a small proxy in front of the real server provides."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.rabbitmq import confirmed, connected, through


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.fixture
async def secured_rabbitmq_url(rabbitmq_url: str, certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    port = urlsplit(rabbitmq_url).port
    passing: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        for source, target in ((reader, server_writer), (server_reader, writer)):
            task = asyncio.create_task(forward(source, target))
            passing.add(task)
            task.add_done_callback(passing.discard)

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield through(rabbitmq_url, server.sockets[0].getsockname()[1]).replace("amqp:", "amqps:")
    server.close()
    if passing:
        await asyncio.wait(passing)


async def test_messages_travel_over_tls(secured_rabbitmq_url: str, certificate: tuple[Path, Path]) -> None:
    broker = connected(secured_rabbitmq_url, cafile=certificate[0])
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send(post.message("k", payload=bytes(300_000)), post.message("k", "b"))
    first, second = await post.take(receiver, 2)
    assert (len(first.data), second.data) == (300_000, b"b")
    await broker.aclose()


async def test_an_unknown_certificate_is_not_trusted(secured_rabbitmq_url: str) -> None:
    broker = connected(secured_rabbitmq_url)
    with pytest.raises(BrokerUnavailable, match="certificate"):
        await broker.apply(Post(broker).topology)
    await broker.aclose()


async def test_receiving_goes_on_after_the_certificates_were_away_for_a_while(
    secured_rabbitmq_url: str, certificate: tuple[Path, Path]
) -> None:
    """As while somebody replaces them."""
    proxy = Proxy("127.0.0.1", urlsplit(secured_rabbitmq_url).port or 0)
    await proxy.start()
    cafile, away = certificate[0], certificate[0].with_suffix(".away")
    broker = connected(through(secured_rabbitmq_url, proxy.port), cafile=cafile)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    cafile.rename(away)
    proxy.cut_all()

    async def tried_in_vain() -> bool:
        return broker._consuming._failures > 1

    assert await post.eventually(tried_in_vain)
    with pytest.raises(BrokerUnavailable, match=f"{cafile.name}.* cannot be read"):
        await broker.plan(post.topology)
    away.rename(cafile)
    assert await confirmed(broker, post.message("k", "a"))
    assert await post.take_texts(receiver, 1) == "a"
    await broker.aclose()
    await proxy.aclose()
