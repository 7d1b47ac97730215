"""The page in a browser: a person starts a story, wants another draft, and takes the rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from examples.genesis.story import Stage
from tests.genesis.test_command import started
from tests.support.components import address

PATIENCE = 60_000.0


@pytest.fixture
def page() -> Iterator[Page]:
    """What the browser complains of is a mistake of ours."""
    said: list[str] = []
    with sync_playwright() as playwright:
        context = playwright.chromium.connect_over_cdp(address("chromium")).new_context()
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        yield page
        context.close()
    assert said == []


@pytest.mark.spec("G11")
def test_a_person_sees_the_session_and_its_tree_grow(page: Page, tmp_path: Path) -> None:
    with started(tmp_path, {}) as (client, _):
        client.get("/")  # it listens by then
        page.goto(str(client.base_url))
        page.fill("#title", "<b>Dawn</b>")
        page.click("text=Begin")
        expect(page.locator("#story .title")).to_have_text("<b>Dawn</b>")
        page.fill("#Theme input", "more sea")
        page.click("#Theme >> text=Another, please")
        expect(page.locator("#Theme")).to_contain_text("draft 2")
        expect(page.locator("#Theme")).to_contain_text("You wished: “more sea”")
        for stage in Stage:
            page.click(f"#{stage} >> text=Take it")
        expect(page.locator("#story .end")).to_be_visible()
        expect(page.locator("#shelf .book.open")).to_contain_text("finished")
        # 32 without the rejection, which is a command and two events; then come an answer, a command, an event.
        expect(page.locator("#tree circle")).to_have_count(38)
        expect(page.locator("#tree path")).to_have_count(37)
        page.goto("about:blank")
