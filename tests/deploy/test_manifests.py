"""The manifests of Cloud Run and the image they run."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from examples.catalog import __main__ as program
from examples.catalog import roads
from examples.catalog.events import TOPIC
from postroad.cli.main import main
from tests.support.components import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
APIS = ("write-api", "read-api")
EVERY = (*APIS, "read-worker")


def manifest(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / f"{name}.yaml").read_text(encoding="utf-8")))


def container(name: str) -> dict[str, Any]:
    (only,) = manifest(name)["spec"]["template"]["spec"]["containers"]
    return dict(only)


@pytest.mark.parametrize("name", APIS)
@pytest.mark.spec("F12")
def test_a_service_has_its_cpu_always_and_is_never_gone(name: str) -> None:
    read = manifest(name)
    assert (read["apiVersion"], read["kind"]) == ("serving.knative.dev/v1", "Service")
    notes = read["spec"]["template"]["metadata"]["annotations"]
    assert notes["run.googleapis.com/cpu-throttling"] == "false"
    assert int(notes["autoscaling.knative.dev/minScale"]) >= 1


@pytest.mark.spec("F12")
def test_the_consumer_is_a_worker_pool_with_an_instance() -> None:
    read = manifest("read-worker")
    assert read["kind"] == "WorkerPool"
    assert int(read["metadata"]["annotations"]["run.googleapis.com/manualInstanceCount"]) >= 1


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.spec("F12")
def test_what_a_container_runs_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = container(name)
    words = [*run["command"], *run["args"]]
    if words[0] == "postroad":
        command = main.get_command(click.Context(main), words[1])
        assert command is not None
        command.make_context(words[1], words[2:])  # raises for what it does not understand
        module, _, attribute = words[2].partition(":")
        assert getattr(importlib.import_module(module), attribute).groups
    else:
        assert words[:3] == ["python", "-m", "examples.catalog"]
        monkeypatch.setattr("sys.argv", words[2:])
        monkeypatch.setenv("PORT", "8080")
        understood = program._arguments()
        assert (understood.host, understood.port) == ("0.0.0.0", run["ports"][0]["containerPort"])
        assert understood.only == name.removesuffix("-api")
        assert understood.api_only == (name == "read-api")


@pytest.mark.spec("F12", "F13")
def test_whoever_relays_lets_a_canary_fly_and_who_only_consumes_is_told_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It flies beside a relay. Its topic has a name, because the writer may not ask who subscribes."""
    monkeypatch.setattr("sys.argv", ["catalog", *container("write-api")["args"][2:], "--data", str(tmp_path)])
    writer, _ = program._services(program._arguments())
    assert writer is not None
    for road in (writer.road, roads.writes):
        assert road.canary is not None
        assert road.canary.topics == (TOPIC,)
        assert road.runner(groups=[])._canary is not None
    assert roads.reads.runner(relay=False)._canary is None
    assert "--canary" not in container("read-worker")["args"]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.spec("F11", "F12")
def test_each_service_has_its_own_account_database_and_health(name: str) -> None:
    run, side = container(name), "writer" if name.startswith("write") else "reader"
    given = {one["name"]: one for one in run["env"]}
    assert given.keys() == {"BROKER_URL", "DATABASE_URL"}
    assert given["BROKER_URL"]["value"] == "pubsub://${PROJECT}"
    assert given["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["name"] == f"catalog-{side}-database-url"
    account = manifest(name)["spec"]["template"]["spec"]["serviceAccountName"]
    assert account.startswith(f"catalog-{side}@")
    port = run["ports"][0]["containerPort"] if "ports" in run else 9464
    for probe, path in (("startupProbe", "/readyz"), ("livenessProbe", "/livez")):
        assert run[probe]["httpGet"] == {"path": path, "port": port}


def test_the_variables_are_those_that_the_code_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.catalog.reader import Reader

    monkeypatch.setenv("DATABASE_URL", "postgresql://catalog_reader@db/catalog")
    monkeypatch.setenv("BROKER_URL", "pubsub://my-project")
    road = Reader().road
    assert (road.database_url, road.broker_url) == ("postgresql://catalog_reader@db/catalog", "pubsub://my-project")


def instructions() -> list[tuple[str, str]]:
    lines = DOCKERFILE.read_text(encoding="utf-8").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(first, rest) for first, rest in words]


@pytest.mark.spec("F12")
def test_the_image_is_slim_has_no_root_and_starts_our_command() -> None:
    steps = instructions()
    bases = [rest for name, rest in steps if name == "FROM"]
    assert all(re.match(r"python:3\.1[1-3]-slim\b", base) for base in bases)
    last = steps[max(n for n, (name, _) in enumerate(steps) if name == "FROM") :]
    users = [rest for name, rest in last if name == "USER"]
    assert users
    assert users[-1] not in ("0", "root")
    assert ("ENTRYPOINT", '["postroad"]') in last  # without a shell, which would keep SIGTERM to itself
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'postroad = "postroad.cli:main"' in scripts


def test_all_that_the_image_copies_is_let_through() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    }
    assert copied == let
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_can_be_built(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers here")
    wanted = [docker, "build", "--quiet", "--file", str(DOCKERFILE), str(ROOT)]
    image = subprocess.run(wanted, capture_output=True, text=True, check=True).stdout.strip()
    said = subprocess.run(
        [docker, "run", "--rm", image, "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("postroad")
