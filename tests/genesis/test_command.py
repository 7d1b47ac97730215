"""`python -m examples.genesis`, as a person starts it, with three workers in processes of their own, and stops it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.genesis.story import Stage
from tests.genesis.test_processes import ENVIRONMENT
from tests.genesis.test_session import WHOLE
from tests.support.components import ROOT
from tests.support.kafka import remove_topics

PATIENCE = 90.0
TOPICS = ("genesis.session.events", "outliner.events", "worldbuilder.events", "character.events")


@pytest.fixture
def addresses(fresh_postgresql_url: str, kafka_url: str) -> dict[str, str]:
    """What the service is meant for; the page's test has the embedded default."""
    remove_topics(kafka_url, *TOPICS, *(f"{topic}.dlq" for topic in TOPICS))
    return {"DATABASE_URL": fresh_postgresql_url, "BROKER_URL": kafka_url}


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@contextmanager
def started(data: Path, addresses: dict[str, str]) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    port, bare = free_port(), {k: v for k, v in ENVIRONMENT.items() if k not in ("DATABASE_URL", "BROKER_URL")}
    command = [sys.executable, "-m", "examples.genesis", "--port", str(port), "--data", str(data)]
    with subprocess.Popen(
        command, cwd=ROOT, env=bare | addresses, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert "The studio is open" in process.stdout.readline()
            transport = httpx.HTTPTransport(retries=20)  # it says so just before it listens
            with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                yield client, process
        finally:
            process.terminate()  # and its workers with it
            process.wait(PATIENCE)


def until_proposed(client: httpx.Client, id: str, stage: Stage) -> dict[str, Any]:
    with client.stream("GET", "/live", params={"session": id}) as stream:
        for line in stream.iter_lines():
            picture = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            session = picture.get("session") or {}
            if (session.get("stage"), session.get("step")) == (stage, "proposed"):
                return dict(picture)
    raise AssertionError("the stream ended")


@pytest.mark.spec("G5", "G11")
def test_a_person_writes_a_story_with_three_workers(tmp_path: Path, addresses: dict[str, str]) -> None:
    with started(tmp_path, addresses) as (client, process):
        assert "Genesis" in client.get("/").text
        id = client.post("/sessions", json={"title": "Dawn"}).json()["id"]
        for stage in Stage:
            until_proposed(client, id, stage)
            answer = client.post(f"/sessions/{id}/{stage.lower()}/confirm", json={"round": 1})
            assert answer.status_code == 200, answer.text
        with client.stream("GET", "/live", params={"session": id}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["session"]["step"] == "finished":
                    break
            # The page still listens: stopping does not wait for it for ever.
            trace = client.get(f"/sessions/{id}/trace").json()
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        # Its workers write there too: it ends when the last of them has ended.
        assert process.stdout is not None
        process.stdout.read()
    assert trace["broken"] == []
    assert [step["type"] for step in trace["steps"] if step["kind"] == "event"] == WHOLE


def test_what_keeps_it_from_opening_is_said_in_a_sentence(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.genesis", "--data", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "DATABASE_URL": "nonsense://x"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("The studio cannot open: ")
    assert "Traceback" not in ended.stderr
