"""`python -m examples.catalog`, as a person starts it, uses its page, and as Cloud Run stops it."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.catalog_roles import missing_database
from tests.support.components import ROOT, address

PATIENCE = 60.0
GIVEN = 8.0
"""Seconds from SIGTERM to the end; Cloud Run takes ten."""


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@contextmanager
def started(data: Path, *arguments: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    port = free_port()
    command = [sys.executable, "-m", "examples.catalog", "--port", str(port), "--data", str(data), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert "The catalog is open" in process.stdout.readline()
            transport = httpx.HTTPTransport(retries=20)  # it says so just before it listens
            with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                yield client, process
        finally:
            process.kill()


@pytest.fixture(params=["files", "servers"])
def places(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """What the command is told of them: nothing, or what `make catalog-servers` says on its first day."""
    if request.param == "files":
        yield ()
        return
    broker = str(request.getfixturevalue("pubsub_url"))
    with missing_database(str(request.getfixturevalue("postgresql_url"))) as administrator:
        yield "--postgresql", administrator, "--broker-url", broker


@pytest.mark.spec("F12")
def test_sigterm_in_the_middle_of_work_loses_nothing_and_ends_in_time(tmp_path: Path, places: tuple[str, ...]) -> None:
    with started(tmp_path, *places) as (client, process):
        first = client.get("/videos").json()[0]
        answered: list[int] = [first["version"]]

        def edit() -> None:
            with httpx.Client(base_url=client.base_url, timeout=PATIENCE) as editor:
                while True:
                    change = {"version": answered[-1], "title": f"Edit {answered[-1]}"}
                    try:
                        answer = editor.patch(f"/videos/{first['video_id']}", json=change)
                    except httpx.TransportError:
                        return
                    answered.append(answer.json()["version"])

        editing = Thread(target=edit)
        editing.start()
        while len(answered) < 5:
            time.sleep(0.01)
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        assert time.monotonic() - asked < GIVEN
        assert process.returncode in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it was asked with
        editing.join()
    with started(tmp_path, *places) as (client, _):
        kept = client.get(f"/videos/{first['video_id']}").json()
        assert kept["version"] >= answered[-1]  # an answer may have been lost on the way, an edit never
        while client.get(f"/search/{first['video_id']}").json().get("version") != kept["version"]:
            time.sleep(0.02)
        found = client.get(f"/search/{first['video_id']}").json()
        assert {**found, "updated_at": ""} == {**kept, "updated_at": ""}


def test_a_person_edits_a_video_and_sees_the_read_side_follow(tmp_path: Path) -> None:
    chromium = address("chromium")
    with started(tmp_path) as (client, _), sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium)
        context = browser.new_context(viewport={"width": 1360, "height": 900})
        try:
            page = context.new_page()
            page.goto(str(client.base_url))
            mine = page.locator("#written .card", has_text="How bread rises")
            mine.get_by_role("button", name="Edit").click()
            page.locator("#written form").get_by_label("Title").fill("How bread rises <slowly>")
            page.locator("#written form").get_by_role("button", name="Save").click()
            followed = page.locator("#found .card", has_text="How bread rises <slowly>")
            expect(followed.locator(".version")).to_have_text("v2", timeout=PATIENCE * 1000)
            page.get_by_label("Search").fill("night train")
            expect(page.locator("#found .card")).to_have_count(1, timeout=PATIENCE * 1000)
        finally:
            context.close()
            browser.close()


def test_what_keeps_it_from_opening_is_said_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.catalog", "--broker-url", "nonsense://x", "--data", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("The catalog cannot open: ")
    assert "Traceback" not in ended.stderr
