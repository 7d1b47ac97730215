"""Whether a process is alive and ready, over HTTP, as an orchestrator asks."""

import asyncio
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.routing import Mount

from postroad import Postroad, RelayOptions
from postroad.cli import main
from postroad.errors import ConfigurationError
from postroad.telemetry.alerts import rule_file
from postroad.telemetry.grafana import dashboard
from postroad.telemetry.http import address_of
from postroad.telemetry.telemetry import Telemetry
from postroad.testing import VirtualClock
from proof.chaos.proxy import Proxy
from tests.support.commands import Running, Shell
from tests.support.outbox import until
from tests.support.rabbitmq import through
from tests.support.telemetry import TOPIC, Weighed, weigh


def get(port: int, path: str, timeout: float = 20.0) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def asked(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, port, path)


@pytest.fixture
async def road(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    async with Postroad("post", sqlite_url, f"embedded:{tmp_path}/broker.db") as road:
        yield road


# -- ready -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("F12")
async def test_it_is_ready_once_it_runs_and_not_before_or_while_it_stops(road: Postroad) -> None:
    telemetry = Telemetry(road)
    holding, go_on = asyncio.Event(), asyncio.Event()

    @road.on(Weighed, group="scales")
    async def hold(event: Weighed) -> None:
        holding.set()
        await go_on.wait()

    async with telemetry.serve("127.0.0.1", 0) as port:
        status, text = await asked(port, "/readyz")
        assert status == 503
        assert "starting" in text
        assert "postroad db migrate" in text
        await road.migrate()
        stop = asyncio.Event()
        running = asyncio.create_task(road.runner().run(stop))
        await until(lambda: road.runners)
        assert await asked(port, "/readyz") == (200, "ok\n")
        await weigh(road, Weighed("7"))
        await holding.wait()
        stop.set()
        await until(lambda: any(runner.stopping for runner in road.runners))
        assert await asked(port, "/readyz") == (503, "stopping\n")
        assert (await asked(port, "/livez"))[0] == 200
        go_on.set()
        await running


@pytest.mark.spec("F12")
async def test_a_broker_that_is_gone_makes_it_unready_and_its_return_ready_again(
    sqlite_url: str, rabbitmq_url: str
) -> None:
    proxy = Proxy("127.0.0.1", urlsplit(rabbitmq_url).port or 0)
    await proxy.start()
    async with Postroad("post", sqlite_url, through(rabbitmq_url, proxy.port)) as road:
        await road.migrate()
        telemetry = Telemetry(road)
        async with road.running():
            assert (await telemetry.answer("/readyz")).status == 200
            await proxy.aclose()
            down = await telemetry.answer("/readyz")
            assert (await telemetry.answer("/livez")).status == 200
    assert down.status == 503
    assert b"guest" not in down.text


@pytest.mark.spec("F12")
async def test_a_database_that_is_gone_makes_it_unready(fresh_postgresql_url: str, tmp_path: Path) -> None:
    parts = urlsplit(fresh_postgresql_url)
    proxy = Proxy("127.0.0.1", parts.port or 0)
    await proxy.start()
    async with Postroad("post", through(fresh_postgresql_url, proxy.port), f"embedded:{tmp_path}/broker.db") as road:
        await road.migrate()
        telemetry = Telemetry(road)
        async with road.running():
            assert (await telemetry.answer("/readyz")).status == 200
            await proxy.aclose()
            assert (await telemetry.answer("/readyz")).status == 503
            assert (await telemetry.answer("/livez")).status == 200


# -- alive -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("F12")
async def test_a_relay_that_hangs_is_not_alive(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    async with Postroad("post", sqlite_url, f"embedded:{tmp_path}/broker.db", clock=clock) as road:
        await road.migrate()
        telemetry = Telemetry(road)
        runner = road.runner(groups=())
        (relay,) = runner.relays
        hanging = asyncio.Event()

        async def hang() -> None:
            hanging.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(relay, "_set_out", hang)
        road.runners.add(runner)
        stop = asyncio.Event()
        running = asyncio.create_task(relay.run(stop))
        await hanging.wait()
        assert (await telemetry.answer("/livez")).status == 200
        clock.shift(3 * relay.options.publish_timeout + 1)
        answer = await telemetry.answer("/livez")
        assert answer.status == 503
        assert b"the relay of postroad_outbox has not looked for 91 s" in answer.text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.spec("F12")
async def test_a_relay_that_has_nothing_to_do_still_looks(road: Postroad) -> None:
    await road.migrate()
    road.relay_options = RelayOptions(poll=0.01)
    async with road.running(groups=()):
        (runner,) = road.runners
        for _ in range(3):
            looked_at = runner.relays[0].looked_at
            await until(lambda before=looked_at: runner.relays[0].looked_at > before)
        assert Telemetry(road).faults() == []


@pytest.mark.spec("F12")
async def test_a_blocked_event_loop_does_not_answer(road: Postroad) -> None:
    telemetry = Telemetry(road)
    answers: list[object] = []
    probed = threading.Event()

    def probe(port: int) -> None:
        try:
            answers.append(get(port, "/livez", timeout=0.5))
        except OSError as error:
            answers.append(type(error))
        probed.set()

    async with telemetry.serve("127.0.0.1", 0) as port:
        threading.Thread(target=probe, args=(port,)).start()
        probed.wait()  # as a handler does that computes, or waits in a plain call
        assert answers == [TimeoutError]
        assert (await asked(port, "/livez"))[0] == 200


# -- HTTP ------------------------------------------------------------------------------------------------------


async def test_other_paths_and_methods_are_refused(road: Postroad) -> None:
    async with Telemetry(road).serve("127.0.0.1", 0) as port:
        assert (await asked(port, "/"))[0] == 404
        assert (await asked(port, "/livez?verbose=1"))[0] == 200
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.post("/livez")).status_code == 405
            head = await client.head("/livez")
            assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "3")


async def said(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("noise", [b"", b"\x00\xff\r\n\r\n", b"GET", b"GET /livez HTTP/1.1\r\n", b"x" * 100_000])
async def test_noise_harms_nobody(noise: bytes, road: Postroad, caplog: pytest.LogCaptureFixture) -> None:
    async with Telemetry(road).serve("127.0.0.1", 0) as port:
        assert b"200 OK" not in await said(port, noise)
        assert (await asked(port, "/livez"))[0] == 200
    assert "exception" not in caplog.text


async def test_a_port_that_is_taken_is_told(road: Postroad) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port} cannot be listened on"):
            async with Telemetry(road).serve("127.0.0.1", port):
                pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("127.0.0.1", 80)),
    ],
)
def test_an_address_without_a_host_is_this_machines_own(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "http", "127.0.0.1", "x:y", "99999", "-1"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no port"):
        address_of(text)


async def test_it_can_be_mounted_in_an_application(road: Postroad) -> None:
    await road.migrate()
    app = Starlette(routes=[Mount("/ops", Telemetry(road))])
    transport = httpx.ASGITransport(app)
    async with road.running(groups=()), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        await weigh(road, Weighed("7"))
        await road.drain()
        metrics = await client.get("/ops/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert f'outbox_publish_success_total{{topic="{TOPIC}"}} 1.0' in metrics.text
        assert (await client.get("/ops/readyz")).status_code == 200
        assert (await client.head("/ops/livez")).content == b""
        assert (await client.post("/ops/livez")).status_code == 405
        assert (await client.get("/ops/else")).status_code == 404


# -- the commands ----------------------------------------------------------------------------------------------


def port_of(running: Running) -> int:
    found = re.search(r"http://127\.0\.0\.1:(\d+)", running.until("metrics and health at"))
    assert found
    return int(found[1])


@pytest.mark.spec("F12", "P16")
def test_a_process_serves_its_metrics_and_its_health_until_it_has_stopped(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shell.running("dev shop:road --http 0") as running:
        port = port_of(running)
        running.until("started")
        assert get(port, "/readyz") == (200, "ok\n")
        assert "ok" in shell(f"healthcheck --http {port}")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 99}')
        running.until("handling")
        assert "outbox_publish_success_total" in get(port, "/metrics")[1]
        running.signal(signal.SIGTERM)
        running.until("finishing what is in hand")
        assert get(port, "/readyz") == (503, "stopping\n")
        assert get(port, "/livez")[0] == 200
        running.signal(signal.SIGTERM)
        assert running.ended() == 143


def test_the_commands_for_those_who_watch(tmp_path: Path) -> None:
    command = CliRunner()
    rules = tmp_path / "rules.yml"
    assert "wrote" in command.invoke(main, ["alerts", "export", "--output", str(rules)]).output
    assert rules.read_text(encoding="utf-8") == command.invoke(main, ["alerts", "export"]).output == rule_file()
    assert command.invoke(main, ["alerts", "grafana"]).output == dashboard() + "\n"
    refused = command.invoke(main, ["alerts", "export", "--output", str(tmp_path / "no" / "folder")])
    assert refused.exit_code == 2
    assert "cannot be written" in refused.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asked = command.invoke(main, ["healthcheck", "--live", "--http", f"0.0.0.0:{port}"])
    assert (asked.exit_code, asked.output.startswith(f"127.0.0.1:{port} does not answer")) == (1, True)
    assert "is no port" in command.invoke(main, ["healthcheck", "--http", "nowhere"]).output
