"""Lists in a real browser: narrowed by each filter, acted on row by row and several at once; payloads of every kind."""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.wrappers_pb2 import StringValue
from playwright.sync_api import Page, expect

from postroad import BusinessError, operations
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
    row.locator("a").first.click()
    page.locator("summary", has_text="Retry").click()
    page.get_by_label("Reason").fill("tomorrow has come")
    page.locator("details.act[open]").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("again")
    fair.run(fair.deliver())
    assert tries == ["a", "a"]
    page.reload()
    expect(page.locator("h1 .state")).to_have_text("succeeded")


def refuse(fair: Fair, *baskets: str) -> None:
    """Each for a cause of its own: that of all whose names begin alike."""

    async def pick(sold: BasketSold) -> None:
        raise BusinessError(f"no {sold.basket_id.partition('-')[0]} today, {len(sold.basket_id)} left")

    fair.road.on(BasketSold, group="picky")(pick)
    fair.run(fair.sell(*baskets))
    fair.run(fair.deliver())


def states(fair: Fair) -> list[str]:
    return [one.state for one in fair.run(operations.inbox_page(fair.road.store, group="picky"))]


def test_failures_of_one_cause_are_shown_and_retried_together_after_a_dry_run(
    fair: Fair, serve: Serve, page: Page
) -> None:
    refuse(fair, "apple-1", "apple-22", "pear-1")
    page.goto(f"{serve()}/failures")
    page.locator(".cause", has_text="no apple").get_by_role("link", name="See them").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody")).not_to_contain_text("pear")
    page.get_by_role("link", name="Retry all that match").click()
    expect(page.locator("[data-count]")).to_have_text("2")
    assert states(fair) == ["refused"] * 3
    page.get_by_label("Reason").fill("apples came")
    page.get_by_role("button", name="Retry 2").click()
    expect(page.locator("[data-done]")).to_have_text("2")
    assert sorted(states(fair)) == ["refused", "waiting", "waiting"]
    told = [(one.action, one.detail) for one in fair.run(operations.acts(fair.road.store))]
    assert told == [("inbox.retry", "apples came")] * 2


def test_chosen_failures_are_retried_or_discarded(fair: Fair, serve: Serve, page: Page) -> None:
    refuse(fair, "a", "b", "c")
    fair.run(fair.forget_refusals())
    page.goto(f"{serve()}/groups/picky?failed=1")
    boxes = page.locator('input[name="ids"]')
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Retry chosen").click()
    expect(page.get_by_role("status")).to_have_text("picky will handle 2 events again")
    assert states(fair) == ["waiting", "waiting", "failed"]
    page.get_by_role("link", name="Only failed").click()
    boxes.nth(2).check()
    page.get_by_label("Reason to discard").fill("a test")
    page.get_by_role("button", name="Discard chosen").click()
    expect(page.get_by_role("status")).to_have_text("picky will not handle it any more")
    expect(page.locator("h1 .state")).to_have_text("refused")
    assert states(fair) == ["waiting", "waiting", "refused"]


def test_dead_letters_of_several_topics_are_paged_to_the_last(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.bury("fair.apple.events", 60))
    fair.run(fair.bury("fair.pear.events", 60))
    page.goto(f"{serve()}/dead")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(50)
    expect(page.locator("thead")).to_have_count(2)  # the rest of the first topic, and the beginning of the second
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(20)
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)
    page.get_by_label("Group").fill("eaters")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(20)


def test_chosen_and_all_failed_commands_are_retried(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.open_stalls("north", "south", "west"))
    fair.run(fair.fail_commands())
    page.goto(f"{serve()}/failures")
    page.get_by_role("link", name="See them").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator('input[name="ids"]').first.check()
    page.get_by_role("button", name="Retry chosen").click()
    expect(page.get_by_role("status")).to_have_text("A worker will carry it out again")
    page.get_by_role("link", name="Commands").first.click()
    page.get_by_role("link", name="Retry all that failed").click()
    expect(page.locator("[data-count]")).to_have_text("2")
    page.get_by_role("button", name="Retry 2").click()
    expect(page.locator("[data-done]")).to_have_text("2")
    assert fair.run(operations.failed_commands(fair.road.store)) == []


def test_a_declared_protobuf_event_shows_its_fields(fair: Fair, serve: Serve, page: Page) -> None:
    declare()

    async def create() -> Any:
        async with fair.road.session() as session, session.begin():
            return fair.road.add(session, v1.VideoCreated(video_id="v-1", title="Tide")).id

    id = fair.run(create())
    page.goto(f"{serve()}/outbox/{id}")
    expect(page.locator("dl").first).to_contain_text("protobuf")
    expect(page.locator("[data-payload]")).to_contain_text(re.compile(r'"title": "Tide"'))
    # What is shown is the envelope, which no one could send in the place of the event.
    expect(page.get_by_role("link", name="Its chain")).to_be_visible()
    expect(page.get_by_role("link", name="Edit and resend")).to_have_count(0)


def test_a_protobuf_event_without_an_envelope_is_edited_and_sent_again(fair: Fair, serve: Serve, page: Page) -> None:
    declare()

    async def update() -> Any:
        async with fair.road.session() as session, session.begin():
            return fair.road.add(session, v1.VideoUpdated(video_id="v-1", title=StringValue(value="Tide"))).id

    page.goto(f"{serve()}/outbox/{fair.run(update())}")
    page.get_by_role("link", name="Edit and resend").click()
    page.get_by_label("Payload").fill('{"video_id": "v-1", "title": "Ebb"}')
    page.get_by_label("Reason").fill("wrong title")
    page.get_by_role("button", name="Send as a new event").click()
    expect(page.locator("[data-payload]")).to_contain_text('"title": "Ebb"')
    expect(page.locator("dl").first).to_contain_text("protobuf")
