"""A service that only consumes: its events are in another service's outbox, and its dashboard works all the same."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import Page, expect

from postroad import Backoff, BusinessError, PoisonError, Postroad, RelayOptions, SubscriberOptions, operations
from postroad.dashboard import dashboard_app
from postroad.errors import OperationRefused
from tests.support.fair import BasketSold, Fair

Serve = Callable[..., str]
TOPIC = "fair.basket.events"


@dataclass
class Mail:
    """Writes a letter for each basket that the fair has sold; has a database of its own."""

    fair: Fair
    road: Postroad
    letters: list[str] = field(default_factory=list)
    mended: bool = False

    def receive(self, *baskets: str, cents: int = 1) -> list[UUID]:
        ids = self.fair.run(self.fair.sell(*baskets, cents=cents))
        self.fair.run(self.fair.deliver())
        self.fair.run(self.work())
        return ids

    async def work(self) -> None:
        async with self.road.running():
            await self.road.drain()

    async def until(self, group: str, id: UUID, state: str) -> None:
        async with self.road.running():
            while (await operations.inbox_record(self.road.store, group, id)).record.state != state:
                await self.road.clock.sleep(0.02)

    def acts(self) -> list[str]:
        return sorted(one.action for one in self.fair.run(operations.acts(self.road.store, limit=1000)))

    async def asked(self, path: str, body: Any = None) -> httpx.Response:
        app = dashboard_app(self.road)
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 4000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as local:
            answer = await (local.get(path) if body is None else local.post(path, json=body))
            await asyncio.gather(*app.state.desk.jobs._tasks)
        await app.state.desk.watch.aclose()
        return answer


@pytest.fixture
def mail(fair: Fair, tmp_path: Path) -> Iterator[Mail]:
    road = Postroad(
        source="mail",
        database_url=f"sqlite:///{tmp_path / 'mail.db'}",
        broker_url=fair.road.broker_url,
        relay=RelayOptions(poll=0.05),
        subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
    )
    mail = Mail(fair, road)

    @road.on(BasketSold, group="letters")
    async def write(sold: BasketSold) -> None:
        if sold.cents == 13 and not mail.mended:
            raise PoisonError(f"no stamp for {sold.basket_id}")
        if sold.cents == 14 and not mail.mended:
            raise BusinessError(f"nobody lives at {sold.basket_id}")
        mail.letters.append(sold.basket_id)

    fair.run(road.migrate())
    fair.run(road.broker.apply(road.topology))
    yield mail
    fair.run(road.aclose())


def act(page: Page, label: str, reason: str = "") -> None:
    form = page.locator("details.act", has=page.locator("summary", has_text=label)).first
    form.locator("summary").click()
    form.get_by_label("Reason").fill(reason)
    form.get_by_role("button", name=label).click()


def test_every_link_to_an_event_leads_to_what_the_group_knows(mail: Mail, serve: Serve, page: Page) -> None:
    (done,) = mail.receive("a")
    (dead,) = mail.receive("b", cents=13)
    (refused,) = mail.receive("c", cents=14)
    base = serve(dashboard_app(mail.road, interval=0.2))
    page.goto(f"{base}/groups/letters")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator(f'tbody a[title="{done}"]').click()
    expect(page.locator("h1")).to_have_text("basket.sold succeeded")
    expect(page.locator("main")).to_contain_text("the service that sent it has it in its outbox")
    page.goto(f"{base}/failures")
    page.locator(f'a[title="{refused}"]').click()
    expect(page.get_by_role("alert")).to_contain_text("nobody lives at c")
    page.goto(f"{base}/failures")
    page.locator(".cause", has_text="letters ·").locator(f'a[title="{dead}"]').click()
    expect(page.locator("h1")).to_contain_text("dead")
    page.get_by_role("link", name="In the inbox").click()
    expect(page).to_have_url(f"{base}/groups/letters/{dead}")
    expect(page.locator("h1")).to_have_text("basket.sold dead")
    expect(page.locator("[data-payload]")).to_contain_text('"cents": 13')
    page.goto(f"{base}/outbox?text={refused}")  # whoever pastes an id
    expect(page).to_have_url(f"{base}/groups/letters/{refused}")
    page.get_by_role("link", name="Its chain").click()
    page.locator(".picture a").click()
    expect(page).to_have_url(f"{base}/groups/letters/{refused}")


def test_what_the_broker_has_kept_is_replayed(mail: Mail, serve: Serve, page: Page) -> None:
    mail.receive("before")
    (id,) = mail.receive("a")
    page.goto(f"{serve(dashboard_app(mail.road))}/groups/letters/{id}")
    act(page, "Replay", "the letter was lost")
    expect(page.get_by_role("status")).to_have_text("letters will handle it once more")
    mail.fair.run(mail.until("letters", id, "succeeded"))
    assert mail.letters == ["before", "a", "a"]
    assert mail.acts() == ["inbox.replay"]
    names = {one.name for one in mail.fair.run(mail.road.broker.subscriptions())}
    assert not [name for name in names if "replay" in name]


def test_a_replay_says_why_it_cannot_be(mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = mail.receive("a")
    store, broker = mail.road.store, mail.road.broker
    replay = {"group": "letters", "id": str(id)}
    monkeypatch.setattr(broker, "features", replace(broker.features, seek=False))
    told = mail.fair.run(mail.asked("/api/acts/inbox.replay", replay)).json()["error"]
    assert "hands out nothing a second time: let the service that sent it send it again" in told
    monkeypatch.undo()
    with pytest.raises(OperationRefused, match="Name the application or the broker"):
        mail.fair.run(operations.replay_event(store, mail.road.outboxes, "letters", id, actor="ada"))
    monkeypatch.setattr("postroad.operations.again._sent_after", lambda _: mail.road.clock.now())  # nothing since
    told = mail.fair.run(mail.asked("/api/acts/inbox.replay", replay)).json()["error"]
    assert "has not kept it either" in told
    assert mail.acts() == []


def test_the_api_tells_what_a_group_knows(mail: Mail) -> None:
    (dead,) = mail.receive("b", cents=13)
    found = mail.fair.run(mail.asked(f"/api/groups/letters/{dead}")).json()
    assert (found["state"], found["payload_from"], found["ours"]) == ("dead", "record", False)
    assert found["detail"]["payload"]["basket_id"] == "b"
    assert found["detail"]["record"]["group"] == "letters"
    assert mail.fair.run(mail.asked(f"/api/groups/nobody/{dead}")).status_code == 409


def test_only_dead_letters_of_the_services_own_groups_go_back_together(mail: Mail, serve: Serve, page: Page) -> None:
    mail.receive("b1", "b2", "b3", cents=13)  # they die in the fair's own group too
    assert len(mail.fair.run(operations.dead_page(mail.road.broker, [TOPIC]))) == 6
    base = serve(dashboard_app(mail.road))
    assert mail.fair.run(mail.asked("/api/dead-letters/count")).json() == {"count": 3}
    assert mail.fair.run(mail.asked("/api/dead-letters/count?cause=other")).json() == {"count": 0}
    told = mail.fair.run(mail.asked("/api/dead-letters/count?group=wrapping")).json()["error"]
    assert "Group wrapping is not of this service, which has letters" in told
    page.goto(f"{base}/dead")
    page.get_by_role("link", name="Retry all that match").click()
    expect(page.locator("[data-count]")).to_have_text("3")
    assert mail.acts() == []
    page.get_by_role("button", name="Retry 3").click()
    expect(page.locator("[data-done]")).to_have_text("3")
    left = mail.fair.run(operations.dead_page(mail.road.broker, [TOPIC]))
    assert [one.group for one in left] == ["wrapping"] * 3
    assert mail.acts() == ["dlq.retry"] * 3


def test_the_topology_shows_no_line_to_what_is_only_read(mail: Mail, serve: Serve, page: Page) -> None:
    mail.receive("a")
    found = mail.fair.run(mail.asked("/api/topology")).json()
    assert found["sends"] == []
    page.goto(f"{serve(dashboard_app(mail.road))}/topology")
    expect(page.locator(".picture text", has_text="mail")).to_be_visible()
    assert page.locator(".picture path.edge[d^='M202 ']").count() == 0  # the right edge of the service's box
    page.goto(f"{serve(dashboard_app(mail.fair.road))}/topology")
    assert page.locator(".picture path.edge[d^='M202 ']").count() == 1
