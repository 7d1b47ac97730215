"""The page in a browser: a person buys twice, pays once, and sees the other order run out of time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.marketplace.test_command import started
from tests.support.components import address

PATIENCE = 60_000.0
TO_PAY = 8
"""Seconds that an order may wait: long enough for a person who wants to, even on a slow machine."""


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


def for_sale(page: Page, title: str) -> Locator:
    return page.locator("#products .card", has_text=title)


def order_of(page: Page, title: str) -> Locator:
    return page.locator("#orders .card", has_text=title)


@pytest.mark.spec("R5", "R10", "R11")
def test_a_person_buys_and_pays_and_sees_an_order_run_out_of_time(page: Page, tmp_path: Path) -> None:
    with started("--data", str(tmp_path), "--payment-seconds", str(TO_PAY)) as (client, _):
        client.get("/")  # it listens by then
        page.goto(str(client.base_url))
        bicycle, lamp = "Bicycle, hardly used", "Desk lamp"
        for_sale(page, bicycle).get_by_role("button", name="Buy").click()
        order_of(page, bicycle).get_by_role("button", name="Pay").click()
        expect(order_of(page, bicycle).locator(".pill")).to_have_text("paid")
        expect(for_sale(page, bicycle)).to_contain_text("sold")
        expect(page.locator("#credit")).to_have_text("credit 100")

        for_sale(page, lamp).get_by_role("button", name="Buy").click()
        expect(order_of(page, lamp)).to_contain_text("left to pay")
        expect(order_of(page, lamp).locator(".pill")).to_have_text("cancelled · timeout")
        expect(for_sale(page, lamp).get_by_role("button", name="Buy")).to_be_visible()
        expect(page.locator("#credit")).to_have_text("credit 90")
        expect(order_of(page, bicycle).locator(".pill")).to_have_text("paid")

        # Two created, one paid, two time-outs: each has come to its consumer, also that of the order that was paid.
        expect(page.locator("#events .event")).to_have_count(5)
        expect(page.locator("#events .stop:last-child.done")).to_have_count(5)
        expect(page.locator("#dead .card")).to_have_count(0)
        page.goto("about:blank")
