"""The proxy cuts where it says it cuts: a fault that misses its aim proves nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from postroad.brokers.pubsub.line import raw
from proof.chaos.proxy import (
    ACKNOWLEDGE,
    ACKNOWLEDGED,
    COMMIT,
    COMMIT_OFFSETS,
    MARK,
    PRODUCE,
    PUBLISHED,
    CutAfter,
    CutAt,
    Proxy,
    Side,
    Trap,
)


@dataclass
class Echo:
    """Answers each piece with itself, and remembers what arrived."""

    received: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                self.received += data
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended.set()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    proxy = Proxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await proxy.start()
    async with server:
        yield proxy
        await proxy.aclose()


class Client:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))

    async def until_cut(self, *pieces: bytes) -> bytes:
        """What still comes back before the connection ends, by whatever means."""
        for piece in pieces:
            self.writer.write(piece)
            await asyncio.sleep(0)
        got = b""
        try:
            while data := await self.reader.read(4096):
                got += data
        except ConnectionError:
            pass
        return got


async def _armed(proxy: Proxy, trap: Trap) -> asyncio.Task[bool]:
    task = asyncio.create_task(proxy.spring(trap, timeout=10))
    await asyncio.sleep(0)
    return task


async def test_without_a_trap_everything_passes(proxy: Proxy) -> None:
    async with Client(proxy) as client:
        assert await client.ask(b"one") == b"one"
        assert await client.ask(b"COMMIT") == b"COMMIT"
    assert proxy.cuts == 0


async def test_so_many_bytes_reach_the_server_and_no_more(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        await client.ask(b"hello")
        sprung = await _armed(proxy, CutAfter(3, Side.CLIENT))
        await client.until_cut(b"abcdef")
        await echo.ended.wait()
        assert await sprung
    # A reset may overtake what was sent just before it, but nothing may pass the limit.
    assert bytes(echo.received) in (b"hello", b"helloabc")


async def test_so_many_bytes_come_back_and_no_more(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        await client.ask(b"hello")
        sprung = await _armed(proxy, CutAfter(3, Side.SERVER))
        assert await client.until_cut(b"abcdef") in (b"", b"abc")
        assert await sprung
    assert bytes(echo.received) == b"helloabcdef"


async def test_the_commit_never_reaches_the_server(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        sprung = await _armed(proxy, CutAt(COMMIT, answered=False))
        await client.ask(b"BEGIN ISOLATION LEVEL READ COMMITTED\0")
        assert await client.until_cut(b"\x03COMMIT\0") == b""
        assert await sprung
    assert b"\x03COMMIT" not in echo.received


async def test_the_commit_reaches_the_server_and_its_answer_is_lost(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        sprung = await _armed(proxy, CutAt(COMMIT, answered=True))
        assert await client.until_cut(b"\x03COMMIT\0") == b""
        assert await sprung
    assert b"\x03COMMIT\0" in echo.received


async def test_a_commit_in_two_pieces_is_noticed(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        sprung = await _armed(proxy, CutAt(COMMIT, answered=False))
        await client.ask(b"\x03COM")
        await client.until_cut(b"MIT\0")
        assert await sprung
    assert b"COMMIT" not in echo.received


async def test_a_prepared_mark_is_known_by_its_name(proxy: Proxy, echo: Echo) -> None:
    prepared = b"P\0\0\0\x40_pg3_7\0UPDATE o SET \"state\" = 'SENT', x = 1\0\0\0"
    bound = b"B\0\0\0\x20\0_pg3_7\0\0\0"
    async with Client(proxy) as client:
        await client.ask(prepared)
        sprung = await _armed(proxy, CutAt(MARK, answered=False))
        await client.ask(b"B\0\0\0\x20\0_pg3_8\0\0\0")
        await client.until_cut(bound)
        assert await sprung
    assert bound not in echo.received


ACK = b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\x07\0\xce"


async def test_a_confirm_of_the_server_never_reaches_the_client(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        await client.ask(b"hello")
        sprung = await _armed(proxy, CutAt(ACKNOWLEDGED, answered=False, sender=Side.SERVER))
        assert await client.until_cut(ACK) == b""
        assert await sprung
    assert ACK in echo.received


async def test_a_confirm_reaches_the_client_and_what_it_says_next_is_lost(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        sprung = await _armed(proxy, CutAt(ACKNOWLEDGED, answered=True, sender=Side.SERVER))
        assert await client.ask(ACK) == ACK
        assert await client.until_cut(b"next") == b""
        assert await sprung
    assert b"next" not in echo.received


async def test_an_acknowledgement_of_the_client_is_not_taken_for_a_confirm(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        sprung = await _armed(proxy, CutAt(ACKNOWLEDGED, answered=False, sender=Side.CLIENT))
        await client.until_cut(ACK)
        assert await sprung
    assert ACK not in echo.received


@pytest.mark.parametrize(("kind", "version"), [(0, 7), (1, 11), (3, 12), (8, 7), (12, 3), (22, 4)])
def test_a_request_to_kafka_is_known_by_its_kind(kind: int, version: int) -> None:
    request = struct.pack(">ihhih", 40, kind, version, 8, 8) + b"postroad" + bytes(22)
    assert bool(PRODUCE.search(request)) == (kind == 0)
    assert bool(COMMIT_OFFSETS.search(request)) == (kind == 8)


def test_an_acknowledgement_to_pubsub_is_not_taken_for_an_extended_lease() -> None:
    subscription = "projects/p/subscriptions/bank.account.events.alpha"
    acknowledged = raw("AcknowledgeRequest")(subscription=subscription, ack_ids=["one", "two"])
    extended = raw("ModifyAckDeadlineRequest")(subscription=subscription, ack_ids=["one"], ack_deadline_seconds=10)
    opened = raw("StreamingPullRequest")(subscription=subscription, stream_ack_deadline_seconds=10)
    assert ACKNOWLEDGE.search(acknowledged.SerializeToString())
    assert not ACKNOWLEDGE.search(extended.SerializeToString())
    assert not ACKNOWLEDGE.search(opened.SerializeToString())


@pytest.mark.parametrize("ids", [["7"], ["12", "13"], [str(number) for number in range(1_000)]])
def test_pubsub_tells_a_relay_the_ids_of_what_it_took(ids: list[str]) -> None:
    answer = raw("PublishResponse")(message_ids=ids).SerializeToString()
    assert PUBLISHED.search(struct.pack(">xI", len(answer)) + answer)


async def test_a_server_that_leaves_ends_every_connection_until_it_comes_back(proxy: Proxy) -> None:
    async with Client(proxy) as client:
        await client.ask(b"hello")
        proxy.leave()
        assert await client.until_cut(b"there?") == b""
    async with Client(proxy) as client:
        assert await client.until_cut(b"hello?") == b""
    proxy.come_back()
    async with Client(proxy) as client:
        assert await client.ask(b"hello") == b"hello"


async def test_one_trap_cuts_one_connection(proxy: Proxy) -> None:
    async with Client(proxy) as first, Client(proxy) as second:
        assert await second.ask(b"there") == b"there"
        sprung = await _armed(proxy, CutAt(COMMIT, answered=False))
        await first.until_cut(b"\x03COMMIT\0")
        assert await sprung
        assert await second.ask(b"still there") == b"still there"
    assert proxy.cuts == 1


async def test_a_trap_nobody_runs_into_does_not_count(proxy: Proxy) -> None:
    async with Client(proxy) as client:
        assert not await proxy.spring(CutAt(COMMIT, answered=True), timeout=0.01)
        assert await client.ask(b"\x03COMMIT\0") == b"\x03COMMIT\0"


async def test_a_stalled_connection_is_silent_but_open_and_goes_on(proxy: Proxy, echo: Echo) -> None:
    async with Client(proxy) as client:
        await client.ask(b"before")
        proxy.stall()
        client.writer.write(b"during")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.reader.read(1)
        assert bytes(echo.received) == b"before"
        proxy.resume()
        assert await client.reader.readexactly(6) == b"during"


async def test_a_connection_made_during_a_stall_hears_nothing_until_it_ends(proxy: Proxy) -> None:
    proxy.stall()
    async with Client(proxy) as client:
        client.writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.reader.read(1)
        proxy.resume()
        assert await client.reader.readexactly(5) == b"hello"


async def test_a_server_that_is_away_ends_the_clients_connection() -> None:
    proxy = Proxy("127.0.0.1", 1)
    await proxy.start()
    async with Client(proxy) as client:
        assert await client.until_cut(b"hello") == b""
    await proxy.aclose()
