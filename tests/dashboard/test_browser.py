"""What a person sees and does, in a real browser."""

import random
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Match, Route

from postroad import consistency, operations
from postroad.dashboard import Role, User, dashboard_app
from postroad.dashboard.app import PROBES
from postroad.errors import OperationRefused
from postroad.operations import doctor, results
from postroad.presence import Presence
from postroad.relay.leases import ShardLeases
from tests.support.fair import Fair

Serve = Callable[..., str]
_MANY = """
  WITH RECURSIVE n(i, at) AS (
    SELECT 0, strftime('%Y-%m-%dT%H:%M:%f000Z', 1700000000, 'unixepoch') UNION ALL
    SELECT i + 1, strftime('%Y-%m-%dT%H:%M:%f000Z', 1700000001 + i, 'unixepoch') FROM n WHERE i < 199999)
  INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version, payload,
                               occurred_at, ordering_key, shard, state, published_at)
  SELECT printf('%08x-0000-7000-8000-%012x', 100000000 + i, i), 'fair.basket.events', 'basket.sold', 'basket',
         'b' || i, 1, CAST('{"basket_id":"b' || i || '"}' AS BLOB), at, 'basket/b' || i, i % 256, 'SENT', at
    FROM n"""
_TIMED = "async (url) => { const t = performance.now(); await (await fetch(url)).text(); return performance.now() - t }"
HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(2)>"'{{7*7}}</textarea></pre>"""


def state(fair: Fair, id: UUID) -> str:
    return fair.run(operations.outbox_event(fair.road.store, fair.road.outboxes, id)).event.state


def acts(fair: Fair) -> list[tuple[str, str]]:
    return [(one.action, one.detail) for one in fair.run(operations.acts(fair.road.store))]


def act(page: Page, label: str, reason: str = "") -> None:
    """Opens a disclosed form, gives the reason, sends it."""
    form = page.locator("details.act", has=page.locator("summary", has_text=re.compile(f"^{label}$"))).first
    form.locator("summary").click()
    if reason:
        form.get_by_label("Reason").fill(reason)
    form.get_by_role("button", name=label).click()


def test_the_overview_is_alive(fair: Fair, serve: Serve, page: Page) -> None:
    page.goto(serve())
    expect(page.locator("[data-tile=waiting]")).to_have_text("0")
    ids = fair.run(fair.sell("a", "b", "c"))
    expect(page.locator("[data-tile=waiting]")).to_have_text("3")
    expect(page.locator("#now-waiting")).to_have_text("3")
    assert page.locator("[data-chart] canvas").count() == 4
    fair.run(fair.park(ids[:1], "no queue takes it"))
    expect(page.locator("[data-tile=parked]")).to_have_text("1")
    expect(page.locator("#still")).to_contain_text("no queue takes it")


def test_events_are_filtered_searched_and_found_by_id(fair: Fair, serve: Serve, page: Page) -> None:
    ids = fair.run(fair.sell("apple", "pear"))
    fair.run(fair.park(ids[:1], "no route to Zürich"))
    page.goto(f"{serve()}/outbox")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("State").select_option("FAILED")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("no route to Zürich")
    page.get_by_label("State").select_option("")
    page.get_by_label("Text or event id").fill('"basket_id":"pear"')
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    page.get_by_label("Text or event id").fill("nothing of the kind")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".empty")).to_contain_text("No events here")
    page.get_by_label("Text or event id").fill(str(ids[1]))
    page.get_by_role("button", name="Search").click()
    expect(page.locator("h1")).to_contain_text("basket.sold")
    expect(page.locator("[data-payload]")).to_contain_text('"basket_id": "pear"')


def test_a_parked_event_is_retried_or_skipped_with_a_reason(fair: Fair, serve: Serve, page: Page) -> None:
    ids = fair.run(fair.sell("a", "b"))
    fair.run(fair.park(ids))
    base = serve()
    page.goto(f"{base}/outbox/{ids[0]}")
    act(page, "Retry", "topic is there now")
    expect(page.get_by_role("status")).to_have_text("1 event will be tried again")
    page.goto(f"{base}/outbox/{ids[1]}")
    page.locator("summary", has_text="Skip").click()
    page.locator("details.act[open]").get_by_role("button", name="Skip").click()
    assert state(fair, ids[1]) == "FAILED"  # the browser asks for the reason first
    page.locator("details.act[open]").get_by_label("Reason").fill("test order")
    page.locator("details.act[open]").get_by_role("button", name="Skip").click()
    expect(page.locator("h1")).to_contain_text("skipped")
    assert (state(fair, ids[0]), state(fair, ids[1])) == ("NEW", "SKIPPED")
    assert acts(fair) == [("outbox.skip", "test order"), ("outbox.retry", "topic is there now")]
    expect(page.locator("main")).to_contain_text("test order")


def test_chosen_events_are_retried_together(fair: Fair, serve: Serve, page: Page) -> None:
    ids = fair.run(fair.sell("a", "b", "c"))
    fair.run(fair.park(ids))
    page.goto(f"{serve()}/outbox?state=FAILED")
    button = page.get_by_role("button", name="Retry chosen")
    expect(button).to_be_disabled()
    page.get_by_label(f"Choose basket.sold {ids[0]}").check()
    page.get_by_label(f"Choose basket.sold {ids[2]}").check()
    expect(page.locator("[data-chosen]")).to_have_text("2 chosen")
    button.click()
    expect(page.get_by_role("status")).to_have_text("2 events will be tried again")
    assert [state(fair, id) for id in ids] == ["NEW", "FAILED", "NEW"]


def test_all_that_match_are_retried_by_a_job_after_a_dry_run(fair: Fair, serve: Serve, page: Page) -> None:
    ids = fair.run(fair.sell(*(f"b{number}" for number in range(250))))
    fair.run(fair.park(ids[:240], "no queue takes it"))
    fair.run(fair.park(ids[240:], "too large"))
    page.goto(f"{serve()}/outbox?state=FAILED&text=queue")
    page.get_by_role("link", name="Retry all that match").click()
    expect(page.locator("[data-count]")).to_have_text("240")
    assert acts(fair) == []
    page.get_by_role("button", name="Retry 240").click()
    expect(page.locator("#job .state")).to_have_text("finished")
    expect(page.locator("[data-done]")).to_have_text("240")
    left = fair.run(operations.parked_ids(fair.road.store, fair.road.outboxes))
    assert sorted(map(str, left)) == sorted(map(str, ids[240:]))
    assert len(fair.run(operations.acts(fair.road.store, limit=1000))) == 240


def test_an_event_is_edited_and_sent_again(fair: Fair, serve: Serve, page: Page) -> None:
    (id,) = fair.run(fair.sell("a", cents=13))
    base = serve()
    page.goto(f"{base}/outbox/{id}")
    page.get_by_role("link", name="Edit and resend").click()
    page.get_by_label("Payload").fill('{"basket_id": "a", "cnts": 14}')
    page.get_by_label("Reason").fill("wrong price")
    page.get_by_role("button", name="Send as a new event").click()
    expect(page.locator(".empty")).to_contain_text("has no field 'cnts'. Did you mean 'cents'?")
    page.go_back()
    page.get_by_label("Payload").fill('{"basket_id": "a", "cents": 14}')
    page.get_by_label("Reason").fill("wrong price")
    page.get_by_role("button", name="Send as a new event").click()
    expect(page.locator("[data-payload]")).to_contain_text('"cents": 14')
    expect(page.locator("dl")).to_contain_text([str(id)])
    page.get_by_role("link", name="Its chain").click()
    expect(page.locator(".picture a")).to_have_count(2)
    page.locator(".picture a").first.click()
    expect(page).to_have_url(f"{base}/outbox/{id}")


def test_a_group_handles_an_event_once_more(fair: Fair, serve: Serve, page: Page) -> None:
    (id,) = fair.run(fair.sell("a"))
    fair.run(fair.deliver())
    page.goto(f"{serve()}/outbox/{id}")
    expect(page.locator("main")).to_contain_text("wrapping")
    act(page, "Replay", "machine was off")
    expect(page.get_by_role("status")).to_have_text("wrapping will handle it once more")

    async def handled() -> None:
        async with fair.road.running():
            while len(fair.handled) < 2:
                await fair.road.clock.sleep(0.02)

    fair.run(handled())
    assert fair.handled == ["a", "a"]


def test_a_delayed_event_is_run_now(fair: Fair, serve: Serve, page: Page) -> None:
    (id,) = fair.run(fair.sell("a", delay=3600))

    async def sent() -> None:
        async with fair.road.running():
            while (await operations.outbox_event(fair.road.store, fair.road.outboxes, id)).event.state != "SENT":
                await fair.road.clock.sleep(0.02)

    fair.run(sent())
    page.goto(f"{serve()}/scheduled")
    expect(page.locator("tbody tr")).to_contain_text("in 60 min")
    expect(page.locator("tbody tr .state")).to_have_text("broker")
    page.locator("tbody tr a").first.click()
    act(page, "Run now")
    expect(page.get_by_role("status")).to_have_text("The event is on its way now")
    page.get_by_role("link", name="Scheduled").click()
    expect(page.locator(".empty")).to_contain_text("Nothing is scheduled")


def test_dead_letters_are_looked_at_given_back_and_discarded(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.sell("b1", "b2", "b3", cents=13))
    fair.run(fair.deliver())
    base = serve()
    page.goto(f"{base}/failures")
    expect(page.locator(".cause")).to_have_count(1)
    expect(page.locator(".cause b")).to_have_text("3")
    page.get_by_role("link", name="See them").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("tbody tr a").first.click()
    expect(page.get_by_role("alert")).to_contain_text("is unlucky")
    act(page, "Discard", "a test")
    expect(page.get_by_role("status")).to_have_text("1 dead letter discarded")
    page.locator('input[name="ids"]').first.check()
    page.get_by_role("button", name="Retry chosen").click()
    expect(page.get_by_role("status")).to_have_text("1 dead letter given back")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Retry all that match").click()
    page.get_by_role("button", name="Retry 1").click()
    expect(page.locator("#job .state")).to_have_text("finished")
    fair.mended = True
    fair.run(fair.deliver())
    assert len(fair.handled) == 2
    page.goto(f"{base}/dead")
    expect(page.locator(".empty")).to_contain_text("No dead letters")
    page.goto(f"{base}/audit")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody")).to_contain_text("a test")


def test_groups_workers_aggregates_and_topology_are_shown(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.sell("a"))
    fair.run(fair.deliver())
    base = serve()
    page.goto(f"{base}/groups")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="wrapping").click()
    expect(page.locator("tbody tr")).to_contain_text("succeeded")
    page.get_by_role("link", name="Only failed").click()
    expect(page.locator(".empty")).to_contain_text("Nothing failed here")
    page.goto(f"{base}/aggregates/basket/a")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.goto(f"{base}/topology")
    for title in ("fair", "fair.basket.events", "wrapping", "handing-out"):
        expect(page.locator(".picture text", has_text=re.compile(f"^{title}$"))).to_have_count(1)
    page.goto(f"{base}/workers")
    expect(page.locator("main")).to_contain_text("Nobody is at work")

    async def during() -> None:
        async with fair.road.running():
            while not await operations.leases(fair.road.store):
                await fair.road.clock.sleep(0.02)
            for _ in range(3):  # the groups have said that they are there
                await fair.road.clock.sleep(0.1)
            seen.append(await fair.road.clock.wait_for(shown(), 20))

    seen: list[Any] = []

    async def shown() -> str:
        import httpx

        async with httpx.AsyncClient() as client:
            return (await client.get(f"{base}/workers")).text

    fair.run(during())
    assert "256" in seen[0]
    assert "alive" in seen[0]
    assert "sending" in seen[0]
    assert "no relay" not in seen[0]


def test_a_group_and_an_outbox_are_paused_and_resumed(fair: Fair, serve: Serve, page: Page) -> None:
    base = serve()
    page.goto(f"{base}/groups/wrapping")
    act(page, "Pause", "the paper is torn")
    expect(page.get_by_role("status")).to_contain_text("wrapping takes no more within seconds")
    row = page.locator("tbody tr", has_text="wrapping")
    expect(row).to_contain_text("the paper is torn")
    page.goto(base)
    expect(page.locator("#tiles")).to_contain_text("wrapping is paused by")
    page.goto(f"{base}/groups")
    act(page, "Resume")
    expect(page.get_by_role("status")).to_have_text("wrapping goes on where it stood")
    page.goto(f"{base}/workers")
    act(page, "Pause", "flood")
    expect(page.locator(".state.paused")).to_have_count(1)
    act(page, "Resume")
    expect(page.locator(".state.no-relay")).to_have_count(1)
    assert [action for action, _ in acts(fair)] == ["outbox.resume", "outbox.pause", "group.resume", "group.pause"]


def test_a_worker_is_drained(fair: Fair, serve: Serve, page: Page) -> None:
    presence = Presence(fair.road.store, "wrapping", clock=fair.road.clock, randomness=random.Random(1))
    fair.run(presence.run_once())
    page.goto(f"{serve()}/workers")
    act(page, "Drain", "deploy")
    expect(page.get_by_role("status")).to_contain_text("takes no more")
    expect(page.locator(".state.draining")).to_have_count(1)
    assert acts(fair) == [("worker.drain", "deploy")]


def test_the_shards_of_a_relay_that_is_gone_are_released(fair: Fair, serve: Serve, page: Page) -> None:
    road = fair.road
    gone = ShardLeases(
        road.store, road.outboxes[0], name="old:1", ttl=600, clock=road.clock, randomness=road.randomness
    )
    fair.run(gone.keep())
    page.goto(f"{serve()}/workers")
    expect(page.locator("tr", has_text="256")).to_contain_text("old:1")
    expect(page.locator("summary", has_text="Release")).to_have_count(0)
    fair.run(change(fair, "UPDATE postroad_worker SET seen_at = '2026-01-01T00:00:00.000000Z'"))
    page.reload()
    act(page, "Release", "its host burnt")
    expect(page.get_by_role("status")).to_have_text("256 shards of old:1 can be taken by others")
    expect(page.locator("tr", has_text="256")).to_contain_text("nobody")
    assert acts(fair) == [("lease.release", "its host burnt")]


def test_commands_are_listed_shown_and_tried_again(fair: Fair, serve: Serve, page: Page) -> None:
    lucky, unlucky = fair.run(fair.open_stalls("north", "unlucky"))
    fair.run(fair.deliver())
    base = serve(mask=["secret_price"])
    page.goto(f"{base}/commands")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Status").select_option("FAILED")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody tr a").first.click()
    expect(page.locator(".note.bad")).to_contain_text("no place is left <b>here</b>")
    expect(page.locator("[data-payload]")).to_contain_text('"stall_id": "unlucky"')
    expect(page.locator("[data-payload]")).to_contain_text('"secret_price": "***"')
    fair.mended = True
    act(page, "Retry", "a place was found")
    expect(page.get_by_role("status")).to_have_text("A worker will carry it out again")
    fair.run(fair.deliver())
    page.goto(f"{base}/commands/{unlucky}")
    expect(page.locator("h1 + p .state")).to_have_text("completed")
    page.get_by_role("link", name="Its chain").click()
    expect(page.locator(".picture a")).to_have_count(2)
    expect(page.locator(".picture")).to_contain_text("map")
    page.goto(f"{base}/chain?id={lucky}")
    expect(page.locator(".picture a")).to_have_count(2)


def test_projections_are_shown_with_the_progress_of_a_rebuild(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.open_stalls("north"))
    fair.run(fair.deliver())
    base = serve()
    page.goto(f"{base}/projections")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("stall_map")
    expect(row.locator(".state")).to_have_text("live")
    rebuilding = (
        "UPDATE postroad_projections SET state = 'rebuilding', generation = 3, progress = 40, total = 100, "
        "expires_at = '2999-01-01T00:00:00.000000Z'"
    )
    fair.run(change(fair, rebuilding))
    page.reload()
    expect(row).to_contain_text("40 of 100 events")
    expect(row.locator(".state")).to_have_text("rebuilding")
    fair.run(change(fair, "UPDATE postroad_projections SET expires_at = '2001-01-01T00:00:00.000000Z'"))
    page.reload()
    expect(row.locator(".state")).to_have_text("interrupted")


async def change(fair: Fair, sql: str) -> None:
    async with fair.road.store.transaction() as connection:
        await connection.exec_driver_sql(sql)


def test_consistency_is_checked_and_the_installation_examined_by_jobs(fair: Fair, serve: Serve, page: Page) -> None:
    fair.run(fair.open_stalls("north"))
    fair.run(fair.deliver())
    base = serve()
    page.goto(f"{base}/consistency")
    expect(page.locator(".empty")).to_contain_text("Not checked yet")
    page.get_by_role("button", name="Check now").click()
    page.get_by_role("link", name="See what was found").click()
    expect(page.locator(".empty")).to_contain_text("Everything fits together")
    fair.run(change(fair, "DELETE FROM postroad_outbox WHERE event_type = 'fair.stall.opened'"))
    an_hour_ago = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 hour')"
    fair.run(change(fair, f"UPDATE postroad_domain_events SET occurred_at = {an_hour_ago}"))
    page.get_by_role("button", name="Check now").click()
    page.get_by_role("link", name="See what was found").click()
    expect(page.locator(".cause").first).to_contain_text("domain events without an outbox row")
    page.goto(f"{base}/doctor")
    expect(page.locator(".empty")).to_contain_text("Not examined yet")
    page.get_by_role("button", name="Examine now").click()
    page.get_by_role("link", name="See what was found").click()
    expect(page.locator(".finding", has_text="postroad worker --group wrapping").first).to_be_visible()
    expect(page.locator(".finding").last).to_contain_text("checks found nothing")


def test_a_viewer_is_offered_no_acts_and_an_operator_only_his(fair: Fair, serve: Serve, page: Page) -> None:
    (id,) = fair.run(fair.sell("a"))
    fair.run(fair.park([id]))
    who = [User("vera", Role.VIEWER)]

    def authorize(request: Request) -> User:
        return who[0]

    base = serve(authorize=authorize)
    page.goto(f"{base}/outbox/{id}")
    expect(page.locator("details.act")).to_have_count(0)
    expect(page.locator(".who")).to_contain_text("vera")
    page.goto(f"{base}/outbox")
    expect(page.get_by_role("button", name="Retry chosen")).to_have_count(0)
    who[0] = User("otto", Role.OPERATOR)
    page.goto(f"{base}/outbox/{id}")
    expect(page.locator("details.act")).to_have_count(1)
    expect(page.get_by_role("link", name="Edit and resend")).to_have_count(0)
    page.locator("details.act summary").click()
    who[0] = User("vera", Role.VIEWER)  # has lost the role since the page was shown
    page.locator("details.act").get_by_role("button", name="Retry").click()
    expect(page.locator(".empty")).to_contain_text("needs the role operator; vera is viewer")
    assert state(fair, id) == "FAILED"


def test_the_token_opens_the_door(fair: Fair, serve: Serve, page: Page) -> None:
    base = serve(token="a-token-of-some-length")
    page.goto(f"{base}/outbox")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Token").fill("something else")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not open")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Token").fill("a-token-of-some-length")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".who")).to_contain_text("Ada")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_hostile_texts_stay_texts_everywhere(fair: Fair, serve: Serve, page: Page) -> None:
    """Whatever runs opens a dialog or breaks the policy, and the page fixture fails the test."""

    async def poisoned() -> UUID:
        (id,) = await fair.sell(HOSTILE[:200], cents=13, buyer={HOSTILE: HOSTILE}, correlation_id=HOSTILE,
                                headers={"note": "<script>alert(3)</script>"}, tenant="<b>north")  # fmt: skip
        await fair.deliver()
        await fair.park([id], HOSTILE)
        columns = "topic = :h, event_type = :h, aggregate_type = :h, ordering_key = :h, correlation_id = :h"
        async with fair.road.store.transaction() as connection:
            change = f"UPDATE postroad_outbox SET {columns} WHERE event_id = :id"
            await connection.execute(text(change), {"h": HOSTILE, "id": str(id)})
            await connection.execute(text("UPDATE postroad_inbox SET error_msg = :h, event_type = :h"), {"h": HOSTILE})
            worker = "INSERT INTO postroad_worker VALUES ('018f0000-0000-7000-8000-000000000000', :h, :h, :h, :n, :n)"
            await connection.execute(text(worker), {"h": HOSTILE, "n": fair.road.store.adapt(fair.road.clock.now())})
        return id

    async def audited() -> None:
        from postroad.operations.audit import record

        async with fair.road.store.transaction() as connection:
            await record(fair.road.store, connection, actor=HOSTILE, action="x", subject=HOSTILE, detail=HOSTILE)

    async def paused() -> None:
        road = fair.road
        await operations.pause_group(road.store, road.groups, "wrapping", actor=HOSTILE, reason=HOSTILE)
        await operations.pause_outbox(road.store, road.outboxes, "postroad_outbox", actor=HOSTILE, reason=HOSTILE)
        await fair.open_stalls(HOSTILE[:100])
        await change(
            fair, "UPDATE postroad_command_box SET status = 'FAILED', error_message = '<script>alert(4)</script>'"
        )

    async def found() -> None:
        store, now = fair.road.store, fair.road.clock.now()
        strange = consistency.Finding("version_gap", HOSTILE, 1, [HOSTILE])
        report = consistency.Report(now, now, 1, 1, [strange], [HOSTILE])
        await results.keep(store, results.CHECK, report, actor=HOSTILE)
        lost = consistency.Loss(HOSTILE, HOSTILE, HOSTILE, 2, 1, [id])
        await results.keep(store, results.VERIFY, [lost], actor=HOSTILE)
        finding = doctor.Finding(HOSTILE, HOSTILE, doctor.Level.FAULT, HOSTILE, HOSTILE, HOSTILE)
        await results.keep(store, results.DOCTOR, doctor.Report(HOSTILE, HOSTILE, [finding]), actor=HOSTILE)

    async def begun() -> str:
        async def find() -> Sequence[Any]:
            raise OperationRefused(HOSTILE)

        return app.state.desk.jobs.start(HOSTILE, HOSTILE, find, find).id  # type: ignore[no-any-return]

    def hostile(name: str) -> str:
        return urlencode({name: HOSTILE})

    id = fair.run(poisoned())
    fair.run(audited())
    fair.run(found())
    fair.run(paused())
    (command,) = fair.run(operations.command_page(fair.road.store))
    app = dashboard_app(fair.road)
    base, job = serve(app), fair.run(begun())
    (dead,) = fair.run(operations.dead_page(fair.road.broker, ["fair.basket.events"]))
    paths = [
        "/", "/outbox", f"/outbox/{id}", f"/outbox/{id}/edit", "/failures", "/dead", f"/dead/{dead.topic}/{dead.id}",
        "/groups", "/groups/wrapping", "/workers", "/topology", "/audit", "/commands", f"/commands/{command.id}",
        "/consistency", "/doctor", "/projections", "/scheduled", f"/chain?{urlencode({'id': HOSTILE})}",
        f"/groups/wrapping/{id}", f"/groups/wrapping?{hostile('cause')}", f"/groups/wrapping/retry?{hostile('cause')}",
        f"/outbox/retry?{hostile('text')}", f"/dead/retry?{hostile('cause')}", f"/dead?{hostile('topic')}",
        f"/commands/retry?{hostile('type')}", f"/commands?{hostile('type')}", f"/audit?{hostile('subject')}",
        f"/jobs/{job}",
        f"/aggregates/{quote(HOSTILE, safe='')}/{quote(HOSTILE[:200], safe='')}",
    ]  # fmt: skip
    for path in paths:
        page.goto(f"{base}{path}")
        expect(page.locator("h1")).to_be_visible()
        assert page.locator("main script, main img").count() == 0, path
    assert {pattern(app, path) for path in paths} == screens(app)
    page.goto(f"{base}/outbox/{id}")
    expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    for name in ("text", "state", "type", "key", "since", "done", "after"):
        page.goto(f"{base}/outbox?{name}=%3Cscript%3Ealert(1)%3C/script%3E%22%3E%3Cimg%20src=x%20onerror=alert(2)%3E")
        assert page.locator("main script, main img").count() == 0, name
    page.get_by_role("link", name="Overview").click()
    page.goto(f"{base}/chain?id=%3Cscript%3Ealert(1)%3C/script%3E")
    page.goto(f"{base}/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E")


def test_everything_can_be_reached_by_keyboard(fair: Fair, serve: Serve, page: Page) -> None:
    ids = fair.run(fair.sell("a", "b"))
    fair.run(fair.park(ids))
    base = serve()
    page.goto(f"{base}/audit")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.locator("body").press("g")
    page.keyboard.press("e")
    expect(page.locator("h1")).to_have_text("Outbox")
    page.wait_for_load_state()  # a page shows its text before its keys work
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-chosen]")).to_have_text("1 chosen")
    page.keyboard.press("k")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.locator(".crumb")).to_have_text("Outbox")
    summary = page.locator("details.act summary").first
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("by hand")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("1 event will be tried again")
    assert acts(fair) == [("outbox.retry", "by hand")]
    page.wait_for_load_state()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def screens(app: Starlette) -> set[str]:
    """The pages that there are, as their routes name them; found by walking, so that a new one is not forgotten."""
    other = {"/login", "/tiles", "/logout", "/do/{name}", "/chain/{id:path}", *PROBES}
    routes = {route.path for route in app.routes if isinstance(route, Route)}
    return {path for path in routes - other if not path.startswith("/api/")}


def pattern(app: Starlette, path: str) -> str:
    """The route of an address."""
    scope = {"type": "http", "method": "GET", "path": unquote(urlsplit(path).path), "root_path": ""}
    routes = [one for one in app.routes if isinstance(one, Route)]
    return next(one.path for one in routes if one.matches(scope)[0] is Match.FULL)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(fair: Fair, serve: Serve, page: Page, scheme: Any) -> None:
    ids = fair.run(fair.sell("a", "b" * 200, cents=13, correlation_id="c" * 100))
    fair.run(fair.deliver())
    fair.run(fair.park(ids[:1], "x" * 300))
    stall, _ = fair.run(fair.open_stalls("n" * 60, "unlucky"))
    fair.run(fair.deliver())
    fair.run(fair.sell("d" * 200, delay=3600))
    dead = fair.run(operations.dead_page(fair.road.broker, ["fair.basket.events"]))[0]
    store = fair.road.store
    fair.run(results.keep(store, results.CHECK, fair.run(consistency.check(fair.road)), actor="a" * 200))
    fair.run(results.keep(store, results.DOCTOR, fair.run(doctor.examine(fair.road)), actor="a" * 200))
    page.set_viewport_size({"width": 375, "height": 720})
    page.emulate_media(color_scheme=scheme)
    app = dashboard_app(fair.road)
    base = serve(app)
    page.goto(f"{base}/doctor")
    page.get_by_role("button", name="Examine now").click()
    expect(page.locator("#job .state")).to_have_text("finished")
    paths = [
        "/", "/outbox", f"/outbox/{ids[0]}", f"/outbox/{ids[0]}/edit", "/outbox/retry", "/failures", "/dead",
        "/dead/retry", f"/dead/{dead.topic}/{dead.id}", "/groups", "/groups/wrapping", "/groups/wrapping/retry",
        f"/groups/wrapping/{dead.event_id}", "/workers", "/scheduled", f"/chain?id={'c' * 100}",
        f"/aggregates/basket/{'b' * 200}",
        "/projections", "/commands", "/commands/retry", f"/commands/{stall}", "/consistency", "/doctor", "/topology",
        "/audit", page.url.removeprefix(base),
    ]  # fmt: skip
    for path in paths:
        page.goto(f"{base}{path}")
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert {pattern(app, path) for path in paths} == screens(app)
    expect(page.locator(".menu")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Groups").click()
    expect(page.locator("h1")).to_have_text("Consumer groups")


def test_two_hundred_thousand_events_are_paged_to_the_last(fair: Fair, serve: Serve, page: Page) -> None:
    """A page deep down costs what the first one costs: no page is found by counting those before it."""

    async def fill() -> None:
        async with fair.road.store.transaction() as connection:
            await connection.exec_driver_sql(_MANY)

    fair.run(fill())
    base = serve()
    page.goto(f"{base}/outbox?state=SENT")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("tbody tr").first).to_contain_text("b199999")
    page.keyboard.press("n")
    expect(page.locator("tbody tr").first).to_contain_text("b199949")

    def milliseconds(query: str) -> float:
        return min(page.evaluate(_TIMED, f"{base}/api/outbox?state=SENT{query}") for _ in range(3))

    first = milliseconds("")
    deep = milliseconds("&until=2023-11-14T23:00:00")
    assert deep < 10 * first + 50
    page.goto(f"{base}/outbox?state=SENT&until=2023-11-14T22:14:00")
    expect(page.locator("tbody tr")).to_have_count(40)
    expect(page.locator("a[rel=next]")).to_have_count(0)
    page.goto(f"{base}/outbox?text=nowhere")
    expect(page.locator(".empty")).to_contain_text("Nothing so far")
    page.get_by_role("link", name="Next page").click()
    expect(page.locator(".bar")).to_contain_text("searched back to")
