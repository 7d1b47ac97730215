"""Lists in a real browser: narrowed by each filter, acted on row by row and several at once; payloads of every kind."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from postroad import BusinessError
from tests.support.catalog import declare, v1
from tests.support.fair import BasketSold, Fair

Serve = Callable[..., str]


def narrowed(page: Page, label: str, value: str) -> None:
    """To one row, and back to all."""
    page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_events_are_narrowed_by_type_aggregate_and_time(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.sell("apple"))
    fair.run(fair.deliver())  # each basket that was sold is wrapped
    base = serve()
    rows = page.locator("tbody tr")
    page.goto(f"{base}/outbox")
    expect(rows).to_have_count(2)
    narrowed(page, "Type", "basket.wrapped")
    expect(rows).to_contain_text("basket.wrapped")
    fair.run(fair.sell("pear"))
    page.goto(f"{base}/outbox")
    expect(rows).to_have_count(3)
    narrowed(page, "Aggregate", "basket/pear")
    expect(rows).to_contain_text("basket/pear")
    fair.run(_long_ago(fair, "pear"))
    page.goto(f"{base}/outbox")
    page.get_by_label("From (UTC)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(2)
    expect(page.locator("tbody")).not_to_contain_text("basket/pear")
    page.get_by_label("From (UTC)").fill("")
    narrowed(page, "To (UTC)", "2020-01-01T00:00")
    expect(rows).to_contain_text("basket/pear")


async def _long_ago(fair: Fair, basket: str) -> None:
    async with fair.road.store.transaction() as connection:
        await connection.exec_driver_sql(
            f"UPDATE postroad_outbox SET occurred_at = '2019-01-01T00:00:00.000000Z' WHERE aggregate_id = '{basket}'"
        )


def test_chosen_dead_letters_are_discarded_with_a_reason(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.sell("b1", "b2", "b3", cents=13))
    fair.run(fair.deliver())
    page.goto(f"{serve()}/dead")
    button = page.get_by_role("button", name="Discard chosen")
    expect(button).to_be_disabled()
    boxes = page.locator('input[name="ids"]')
    boxes.nth(0).check()
    boxes.nth(1).check()
    expect(page.locator("[data-chosen]")).to_have_text("2 chosen")
    page.get_by_label("Reason to discard").fill("test orders")
    button.click()
    expect(page.get_by_role("status")).to_have_text("2 dead letters discarded")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Audit").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("test orders")


def test_a_record_that_failed_is_tried_again_by_its_group(fair: Fair, serve: Serve, page: Page) -> None:
    tries: list[str] = []

    async def pick(sold: BasketSold) -> None:
        tries.append(sold.basket_id)
        if len(tries) == 1:
            raise BusinessError("not today")

    fair.road.on(BasketSold, group="picky")(pick)
    fair.run(fair.sell("a"))
    fair.run(fair.deliver())
    page.goto(f"{serve()}/groups/picky?failed=1")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("not today")
    row.locator("summary", has_text="Retry").click()
    row.get_by_label("Reason").fill("tomorrow has come")
    row.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("again")
    fair.run(fair.deliver())
    assert tries == ["a", "a"]
    page.reload()
    expect(row.locator(".state")).to_have_text("succeeded")


def test_a_declared_protobuf_event_shows_its_fields(fair: Fair, serve: Serve, page: Page) -> None:
    declare()

    async def create() -> Any:
        async with fair.road.session() as session, session.begin():
            return fair.road.add(session, v1.VideoCreated(video_id="v-1", title="Tide")).id

    id = fair.run(create())
    page.goto(f"{serve()}/outbox/{id}")
    expect(page.locator("dl").first).to_contain_text("protobuf")
    expect(page.locator("[data-payload]")).to_contain_text(re.compile(r'"title": "Tide"'))
