"""What others need to watch a service: alert rules, a dashboard, and whether a process is well."""

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import click

from postroad.redact import one_line
from postroad.telemetry.alerts import rule_file
from postroad.telemetry.grafana import dashboard
from postroad.telemetry.http import address_of

_PATIENCE = 5.0
_EVERYWHERE = ("0.0.0.0", "::")


@click.group()
def alerts() -> None:
    """Alert rules for Prometheus and a dashboard for Grafana."""


_output = click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="A file, not the screen."
)


@alerts.command("export")
@_output
def export_rules(output: Path | None) -> None:
    """The alert rules, for `rule_files` in prometheus.yml.

    \b
    Example:
      postroad alerts export --output postroad-rules.yml
    """
    _put(rule_file(), output)


@alerts.command("grafana")
@_output
def export_dashboard(output: Path | None) -> None:
    """A dashboard with a panel for every metric, to be imported into Grafana."""
    _put(dashboard() + "\n", output)


@click.command()
@click.option("--live", is_flag=True, help="Ask only whether it is alive, not whether it is ready.")
@click.option("--http", metavar="[HOST:]PORT", envvar="POSTROAD_HTTP", required=True, help="As given to the process.")
def healthcheck(http: str, live: bool) -> None:
    """Asks a running process how it is: exit code 0 if it is well. For containers.

    \b
    Examples:
      postroad healthcheck --http 9464
      HEALTHCHECK CMD ["postroad", "healthcheck", "--http", "9464"]
    """
    host, port = address_of(http)
    status, text = _ask("127.0.0.1" if host in _EVERYWHERE else host, port, "/livez" if live else "/readyz")
    click.echo(text)
    if status != HTTPStatus.OK:
        raise click.exceptions.Exit(1)


def _ask(host: str, port: int, path: str) -> tuple[int, str]:
    try:
        with closing(HTTPConnection(host, port, timeout=_PATIENCE)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace").strip()
    except (OSError, HTTPException, UnicodeError) as error:  # the last: of a host that no name can be
        return 0, one_line(f"{host}:{port} does not answer: {error}")


def _put(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror}.") from None
    click.echo(f"wrote {output}")
