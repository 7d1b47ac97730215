"""dashboard: the pages for people on call, served by a process of their own."""

import asyncio
import socket
from typing import Any, Final

import click

from postroad.app import Postroad
from postroad.cli.application import load
from postroad.cli.output import Output
from postroad.cli.reach import require_database
from postroad.cli.signals import Stop
from postroad.cli.site import close, completing, require_file
from postroad.cli.which import needs_app
from postroad.errors import ConfigurationError, MissingExtra
from postroad.stores import migrations

_SHORTEST_TOKEN: Final = 16


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen. Elsewhere than here needs a token."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8480, show_default=True)
@click.option("--token", envvar="POSTROAD_DASHBOARD_TOKEN", default="", help="Whoever has it comes in, as admin.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    help="A name under which it is reached; https://NAME where a proxy ends TLS; may be repeated.",
)
@click.option("--mask", multiple=True, help="A field of payloads that nobody may see; may be repeated.")
@click.option(
    "--trace-url", default="", help="Where a trace is shown, as in https://jaeger.example.com/trace/{trace_id}."
)
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as JSON.")
@needs_app
def dashboard(
    app: str,
    host: str,
    port: int,
    token: str,
    hosts: tuple[str, ...],
    mask: tuple[str, ...],
    trace_url: str,
    as_json: bool,
) -> None:
    """What waits, what failed, who is at work; and the acts that mend it, in a browser.

    On this machine it is open to whoever is here. To listen elsewhere, set POSTROAD_DASHBOARD_TOKEN rather than
    --token, which others could see in the list of processes.

    \b
    Examples:
      postroad dashboard shop:road
      postroad dashboard shop:road --host 0.0.0.0 --allow-host https://ops.example.com --mask card --mask 'customer.*'
    """
    _check(host, token)
    road, out = load(app), Output(as_json)
    settings = {"token": token, "hosts": (host, *hosts), "mask": mask, "trace_url": trace_url}
    with completing(f" {app}"):
        code = asyncio.run(_until_stopped(road, out, host, port, settings))
    if code:
        raise click.exceptions.Exit(code)


def _check(host: str, token: str) -> None:
    try:
        from postroad.dashboard.access import is_loopback
    except ModuleNotFoundError as error:
        raise MissingExtra(f"A library of the dashboard ({error.name})", "dashboard") from None
    if token and len(token) < _SHORTEST_TOKEN:
        raise ConfigurationError(
            f"The token is shorter than {_SHORTEST_TOKEN} characters. Make one: openssl rand -hex 24"
        )
    if not token and not is_loopback(host):
        raise ConfigurationError(
            f"--host {host} would let everybody in who can reach it. Set POSTROAD_DASHBOARD_TOKEN, or leave out --host."
        )


async def _until_stopped(road: Postroad, out: Output, host: str, port: int, settings: dict[str, Any]) -> int:
    from postroad.dashboard import dashboard_app

    async with Stop() as stop:
        try:
            require_file(road.store)
            await require_database(road.store)
            await migrations.require_current(road.store, road.outboxes)
            listening = _listen(host, port)
            served = dashboard_app(road, **settings)
            await _serve(served, listening, out, stop, host)
        except asyncio.CancelledError:
            if stop.exit_code is None:
                raise
            return stop.exit_code
        finally:
            await close(road)
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from None


async def _serve(app: Any, listening: socket.socket, out: Output, stop: Stop, host: str) -> None:
    import uvicorn

    # Nobody's header says where a visitor comes from: whoever is let in without a token is so by his address.
    config = uvicorn.Config(app, proxy_headers=False, server_header=False, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    # Not `serve`, which would take the signals for itself.
    serving = asyncio.create_task(server._serve([listening]))
    stop.ready()
    told = f"[{host}]" if ":" in host else host
    url = f"http://{told}:{listening.getsockname()[1]}/"
    if out.as_json:
        out.line({"state": "started", "url": url})
    else:
        out.say(f"dashboard at {url}; Ctrl-C stops it", "green")
    stopping = asyncio.create_task(stop.event.wait())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    server.should_exit = True
    await serving
