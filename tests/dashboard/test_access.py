"""Who comes in, what each may do, and what no answer may hold."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from postroad import consistency, operations
from postroad.brokers.base import Subscription, Topology
from postroad.cli import main
from postroad.dashboard import Role, User, acts, dashboard_app
from postroad.dashboard.access import CSRF, SESSION
from postroad.dashboard.app import PROBES
from postroad.errors import ConfigurationError, StoreUnavailable
from postroad.operations import results
from tests.support.commands import leaves
from tests.support.fair import Fair

TOKEN = "a-token-of-some-length"
PAGES = (
    "/", "/tiles", "/outbox", "/outbox/retry", "/failures", "/dead", "/groups", "/groups/wrapping", "/workers",
    "/scheduled", "/chain", "/chain/c-1", "/aggregates/basket/a", "/topology", "/audit",
    "/projections", "/commands", "/consistency", "/doctor", "/dead/retry", "/groups/wrapping/retry", "/commands/retry",
)  # fmt: skip
QUESTIONS = (
    "/api/status", "/api/samples", "/api/outbox", "/api/outbox/count", "/api/dead-letters", "/api/failures",
    "/api/groups/wrapping", "/api/workers", "/api/chains/c-1", "/api/aggregates/basket/a", "/api/scheduled",
    "/api/audit", "/api/topology", "/api/openapi.json", "/api/projections", "/api/commands", "/api/consistency",
    "/api/doctor", "/api/dead-letters/count", "/api/groups/wrapping/count", "/api/commands/count",
)  # fmt: skip


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Fair]:
    fair = Fair(tmp_path)
    fair.loop.close()
    await fair.road.migrate()
    yield fair
    await fair.road.aclose()


def visitor(app: Starlette, *, client: str = "127.0.0.1", host: str = "localhost", **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(client, 4000))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=named)


async def closing(app: Starlette) -> None:
    await app.state.desk.watch.aclose()


async def test_every_screen_and_every_question_answers(shop: Fair) -> None:
    (id,) = await shop.sell("a", correlation_id="c-1")
    await shop.sell("b", cents=13)
    await shop.deliver()
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        (dead,) = (await local.get("/api/dead-letters")).json()
        single = (f"/outbox/{id}", f"/outbox/{id}/edit", f"/dead/{dead['topic']}/{dead['id']}")
        single += (f"/groups/wrapping/{dead['event_id']}", f"/api/groups/wrapping/{dead['event_id']}")
        for path in (*PAGES, *QUESTIONS, *single, f"/api/outbox/{id}"):
            answer = await local.get(path)
            assert answer.status_code == 200, path
        arrivals = (await local.get(f"/api/outbox/{dead['event_id']}")).json()["arrivals"]
        assert [(one["group"], one["state"]) for one in arrivals] == [("wrapping", "dead")]
        assert (await local.get("/nowhere")).status_code == 404
        assert (await local.get("/outbox/018f0000-0000-7000-8000-000000000000")).status_code == 409
    await closing(app)


async def test_without_token_and_callable_only_this_machine_comes_in(shop: Fair) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app, client="::1") as local:
        assert (await local.get("/audit")).status_code == 200
    strangers: list[dict[str, Any]] = [
        {"client": "10.0.0.7"},
        {"x_forwarded_for": "127.0.0.1"},  # a proxy on this machine speaks for somebody else
        {"forwarded": "for=10.0.0.7"},
        {"via": "1.1 proxy"},
    ]
    for stranger in strangers:
        async with visitor(app, **stranger) as one:
            for path in (*PAGES, *QUESTIONS):
                assert (await one.get(path)).status_code == 403, (stranger, path)
            assert (await one.post("/do/outbox.retry")).status_code == 403
            assert (await one.get("/login")).status_code == 403


async def test_a_host_that_is_not_ours_is_turned_away(shop: Fair) -> None:
    """A page elsewhere may point its own name at this machine, and would then be of the same origin."""
    app = dashboard_app(shop.road, hosts=["ops.example.com"])
    for host, code in (
        ("evil.example", 421), ("localhost.evil.example", 421), ("127.0.0.1.nip.io", 421),
        ("localhost:8480", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("OPS.example.com", 200),
    ):  # fmt: skip
        async with visitor(app) as one:
            assert (await one.get("/audit", headers={"host": host})).status_code == code, host


async def test_with_a_token_everybody_needs_it(shop: Fair) -> None:
    app = dashboard_app(shop.road, token=TOKEN)
    async with visitor(app) as local:
        assert (await local.get("/outbox")).headers["location"] == "/login"
        assert (await local.get("/api/audit")).status_code == 401
        for wrong in ("", "x", TOKEN + "x", TOKEN[:-1]):
            assert (await local.get("/api/audit", headers={"authorization": f"Bearer {wrong}"})).status_code == 401
        assert (await local.get("/api/audit", headers={"authorization": f"bearer {TOKEN}"})).status_code == 200


async def test_no_route_is_open(shop: Fair) -> None:
    """Found by walking them, so that a new one is tried without being named here."""
    app = dashboard_app(shop.road, token=TOKEN)
    routes = [route for route in app.routes if isinstance(route, Route) and route.path not in ("/login", *PROBES)]
    assert {mount.path for mount in app.routes if isinstance(mount, Mount)} == {"/static"}
    assert len(routes) > len(PAGES) / 2
    async with visitor(app) as stranger:
        for route in routes:
            for method in route.methods or {"GET"}:
                answer = await stranger.request(method, re.sub(r"{.*?}", "x", route.path))
                turned_away = answer.headers.get("location") == "/login" or answer.status_code in (401, 403)
                assert turned_away, (method, route.path, answer.status_code)


async def test_a_login_is_remembered_by_a_cookie_that_does_not_hold_the_token(shop: Fair) -> None:
    app = dashboard_app(shop.road, token=TOKEN)
    async with visitor(app) as local:
        await local.get("/login")
        form = {"csrf": local.cookies[CSRF], "name": "Ada", "token": "wrong"}
        assert (await local.post("/login", data=form)).status_code == 403
        assert (await local.post("/login", data=form | {"token": TOKEN, "csrf": "x"})).status_code == 403
        entered = await local.post("/login", data=form | {"token": TOKEN})
        assert entered.status_code == 303
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in entered.headers["set-cookie"]
        assert "Ada" in (await local.get("/audit")).text
        told, _, signature = local.cookies[SESSION].partition(".")
        for forged in (f"{told}x.{signature}", f"{told}.{signature[:-1]}0", f"{told}.", "", "x"):
            async with visitor(app, cookie=f"{SESSION}={forged}") as other:
                assert (await other.get("/audit")).status_code == 303


def role(request: Request) -> User | None:
    name = request.headers.get("x-user", "")
    roles = {"vera": Role.VIEWER, "otto": Role.OPERATOR, "ada": Role.ADMIN}
    return User(name, roles[name]) if name in roles else None


ACTS = {
    "outbox.retry": ("otto", {"ids": ["{id}"]}),
    "outbox.retry_matching": ("otto", {}),
    "outbox.run_now": ("otto", {"id": "{id}"}),
    "inbox.retry": ("otto", {"group": "wrapping", "ids": ["{id}"]}),
    "inbox.retry_matching": ("otto", {"group": "wrapping"}),
    "inbox.discard": ("ada", {"group": "wrapping", "ids": ["{id}"], "reason": "no"}),
    "inbox.replay": ("otto", {"group": "wrapping", "id": "{id}"}),
    "dlq.retry": ("otto", {"topic": "fair.basket.events", "ids": ["9"]}),
    "dlq.retry_matching": ("otto", {}),
    "group.pause": ("otto", {"group": "wrapping"}),
    "group.resume": ("otto", {"group": "wrapping"}),
    "outbox.pause": ("otto", {"outbox": "postroad_outbox"}),
    "outbox.resume": ("otto", {"outbox": "postroad_outbox"}),
    "worker.drain": ("otto", {"worker": "nobody:1"}),
    "lease.release": ("otto", {"owner": "nobody:1"}),
    "command.retry": ("otto", {"ids": ["{id}"]}),
    "command.retry_matching": ("otto", {}),
    "consistency.check": ("otto", {}),
    "doctor.examine": ("otto", {}),
    "outbox.skip": ("ada", {"id": "{id}", "reason": "no"}),
    "outbox.resend": ("ada", {"id": "{id}", "payload": "{}", "reason": "no"}),
    "dlq.discard": ("ada", {"topic": "fair.basket.events", "ids": ["9"], "reason": "no"}),
}


COMMANDS = {
    "outbox.retry": "outbox retry", "outbox.retry_matching": "outbox retry", "outbox.skip": "outbox skip",
    "outbox.resend": "outbox resend", "outbox.run_now": "outbox run-now", "inbox.retry": "inbox retry",
    "inbox.retry_matching": "inbox retry", "inbox.discard": "inbox discard", "command.retry_matching": "command retry",
    "inbox.replay": "inbox replay", "dlq.retry": "dlq retry", "dlq.retry_matching": "dlq retry",
    "dlq.discard": "dlq discard", "group.pause": "pause", "group.resume": "resume", "outbox.pause": "pause",
    "outbox.resume": "resume", "worker.drain": "drain", "lease.release": "release", "command.retry": "command retry",
    "consistency.check": "check", "doctor.examine": "doctor",
}  # fmt: skip
NARROWS: dict[str, set[str]] = {
    "outbox.retry_matching": {"state"}, "dlq.retry_matching": set(), "inbox.retry_matching": set(),
    "command.retry_matching": set(),
}  # fmt: skip
"""What a job may be narrowed by on the dashboard and not on the command line, which retries what is parked only."""


def test_each_act_is_also_a_command() -> None:
    known = {" ".join(path): command for path, command in leaves(main)}
    assert set(COMMANDS) == set(acts.ACTS)
    for name, command in COMMANDS.items():
        assert command in known, name
    for name, dashboard_only in NARROWS.items():
        options = {option.lstrip("-") for one in known[COMMANDS[name]].params for option in one.opts}
        assert set(acts.ACTS[name].takes.__struct_fields__) - options == dashboard_only


def filled(given: dict[str, Any], id: UUID) -> dict[str, Any]:
    return {
        k: [x.format(id=id) for x in v] if isinstance(v, list) else v.replace("{id}", str(id)) for k, v in given.items()
    }


async def test_each_act_needs_its_role(shop: Fair) -> None:
    ids = await shop.sell("a")
    app = dashboard_app(shop.road, authorize=role)
    ranks = ["vera", "otto", "ada"]
    for name, (least, given) in ACTS.items():
        for user in ranks:
            async with visitor(app, x_user=user) as one:
                answer = await one.post(f"/api/acts/{name}", json=filled(given, ids[0]))
                assert (answer.status_code == 403) == (ranks.index(user) < ranks.index(least)), (name, user)
    assert set(ACTS) == set(acts.ACTS)
    async with visitor(app, x_user="nobody") as one:
        assert (await one.get("/audit")).status_code == 403
        assert (await one.post("/api/acts/outbox.retry", json={})).status_code == 403
    await closing(app)


async def test_an_asynchronous_callable_may_decide_too(shop: Fair) -> None:
    async def later(request: Request) -> User | None:
        await asyncio.sleep(0)
        return role(request)

    app = dashboard_app(shop.road, authorize=later)
    async with visitor(app, x_user="vera") as one:
        assert (await one.get("/audit")).status_code == 200
    async with visitor(app) as one:
        assert (await one.get("/audit")).status_code == 403


async def test_no_act_without_the_pages_own_secret(shop: Fair) -> None:
    """What another site makes a browser send has the cookies, but not what stands in our forms."""
    ids = await shop.sell("a")
    await shop.park(ids)
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        await local.get("/audit")
        csrf, form = local.cookies[CSRF], {"ids": str(ids[0])}
        attempts: list[tuple[dict[str, str], dict[str, str]]] = [
            (form, {}),
            (form | {"csrf": "x"}, {}),
            (form | {"csrf": csrf}, {"origin": "http://evil.example"}),
            (form | {"csrf": csrf}, {"origin": "null"}),
            (form | {"csrf": csrf}, {"sec-fetch-site": "cross-site"}),
            (form | {"csrf": csrf}, {"sec-fetch-site": "same-site"}),
        ]
        for data, headers in attempts:
            for name in ACTS:
                assert (await local.post(f"/do/{name}", data=data, headers=headers)).status_code == 403
            assert (await local.post("/logout", data=data, headers=headers)).status_code == 403
        for headers in ({"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
            assert (await local.post("/api/acts/outbox.retry", content=b"{}", headers=headers)).status_code == 403
        foreign = await local.post("/api/acts/outbox.retry", json={}, headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        assert (await operations.acts(shop.road.store)) == []
        done = await local.post("/do/outbox.retry", data=form | {"csrf": csrf}, headers={"origin": "http://localhost"})
        assert done.status_code == 303
    assert [one.action for one in await operations.acts(shop.road.store)] == ["outbox.retry"]
    await closing(app)


async def test_every_answer_has_its_headers_and_no_inline_code(shop: Fair) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        for path in (*PAGES, *QUESTIONS, "/nowhere", "/static/dashboard.css"):
            answer = await local.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            if "html" in answer.headers["content-type"]:
                assert " style=" not in answer.text
                assert " onclick=" not in answer.text
                assert "<script>" not in answer.text
                assert "http://" not in answer.text.replace("http://localhost", ""), path
                assert answer.headers["cache-control"] == "no-store"
    await closing(app)


async def test_masked_fields_are_in_no_answer_and_cannot_be_searched_for(shop: Fair) -> None:
    buyer = {"name": "Ada", "card": "4111-2222", "password": "hunter2", "mail": [{"address": "ada@example.com"}]}
    (id,) = await shop.sell("a", cents=13, buyer=buyer, headers={"api_key": "k-123456"})
    await shop.deliver()
    app = dashboard_app(shop.road, mask=["card", "buyer.mail.*.address"])
    async with visitor(app) as local:
        (dead,) = (await local.get("/api/dead-letters")).json()
        paths = (
            f"/outbox/{id}", f"/outbox/{id}/edit", f"/api/outbox/{id}", "/api/outbox", "/outbox", "/api/status",
            "/dead", "/api/dead-letters", f"/dead/{dead['topic']}/{dead['id']}",
        )  # fmt: skip
        for path in paths:
            text = (await local.get(path)).text
            for secret in ("4111", "hunter2", "ada@example.com", "k-123456"):
                assert secret not in text, path
        assert "Ada" in (await local.get(f"/outbox/{id}")).text
        assert (await local.get("/api/outbox", params={"text": "4111-2222"})).json()["events"] == []
    await closing(app)
    open_app = dashboard_app(shop.road)
    async with visitor(open_app) as local:
        assert len((await local.get("/api/outbox", params={"text": "4111-2222"})).json()["events"]) == 1
    await closing(open_app)


async def test_who_only_looks_cannot_search_payloads(shop: Fair) -> None:
    """What is hidden in them could be found out letter by letter, also where nothing is masked."""
    (id,) = await shop.sell("a", buyer={"password": "hunter2"})
    await shop.park([id])
    app = dashboard_app(shop.road, authorize=role)
    for user, found in (("vera", 0), ("otto", 1)):
        async with visitor(app, x_user=user) as one:
            for text in ("hunter", '"basket_id":"a"'):
                assert len((await one.get("/api/outbox", params={"text": text})).json()["events"]) == found, user
                assert (await one.get("/api/outbox/count", params={"text": text})).json() == {"count": found}, user
                told = (await one.get("/outbox/retry", params={"text": text})).text
                assert f"<b data-count>{found}</b>" in told, user
            assert len((await one.get("/api/outbox", params={"text": "no queue"})).json()["events"]) == 1
    await closing(app)


SECRET = "db://shop:hunter2@db/shop token=abcdef123"


async def test_secrets_that_people_wrote_are_in_no_answer(shop: Fair) -> None:
    road = shop.road
    ids = await shop.sell("a", "b", cents=13)
    await shop.deliver()
    await shop.park(ids, SECRET)
    await operations.retry_events(road.store, road.outboxes, ids[:1], actor="otto", reason=SECRET)
    await operations.pause_group(road.store, road.groups, "wrapping", actor="otto", reason=SECRET)
    await operations.pause_outbox(road.store, road.outboxes, "postroad_outbox", actor="otto", reason=SECRET)
    (command,) = await shop.open_stalls("north")
    await shop.fail_commands()
    await operations.retry_commands(road.store, [command], actor="otto", reason=SECRET)
    await operations.retry_record(road.store, road.broker, "wrapping", ids[1], actor="otto", reason=SECRET)
    app = dashboard_app(road)
    async with visitor(app) as local:
        shown = (
            *PAGES, *QUESTIONS, f"/outbox/{ids[0]}", f"/groups/wrapping/{ids[1]}", f"/commands/{command}",
            f"/api/outbox/{ids[0]}", f"/api/groups/wrapping/{ids[1]}", f"/api/commands/{command}",
        )  # fmt: skip
        telling = 0
        for path in shown:
            answer = (await local.get(path)).text
            assert "hunter2" not in answer, path
            assert "abcdef123" not in answer, path
            telling += "db://shop:***@db" in answer
        assert telling >= 12
    await closing(app)


async def test_an_edited_copy_needs_a_reason_and_keeps_lists_as_they_are(shop: Fair) -> None:
    (id,) = await shop.sell("a", buyer={"cards": [{"card": "1"}, {"card": "2"}]})
    app = dashboard_app(shop.road, mask=["card"])
    async with visitor(app) as local:
        payload = '{"basket_id": "a", "buyer": {"cards": [{"card": "***"}]}}'
        for given, told in (
            ({"payload": payload, "reason": "wrong"}, "payload.buyer.cards had 2 entries"),
            ({"payload": "{}", "reason": " "}, "needs a reason"),
            ({"payload": "{}"}, "needs a reason"),
        ):
            answer = await local.post("/api/acts/outbox.resend", json={"id": str(id), **given})
            assert answer.status_code == 409
            assert told in answer.json()["error"]
    assert len(await operations.outbox_page(shop.road.store, shop.road.outboxes)) == 1
    await closing(app)


async def test_cookies_are_secure_where_a_proxy_ends_tls(shop: Fair) -> None:
    app = dashboard_app(shop.road, token=TOKEN, hosts=["https://Ops.example.com", "inside.example.com"])
    for host, secure in (("ops.example.com", True), ("inside.example.com", False), ("localhost", False)):
        # Whoever wants to hear it may claim anything: nobody's header decides.
        async with visitor(app, host=host, x_forwarded_proto="http" if secure else "https") as one:
            told = (await one.get("/login")).headers["set-cookie"]
            assert ("; secure" in told.lower()) == secure, host
            form = {"csrf": told.partition("=")[2].partition(";")[0], "name": "Ada", "token": TOKEN}
            cookies = {"cookie": f"{CSRF}={form['csrf']}"}
            entered = await one.post("/login", data=form, headers=cookies)
            assert entered.status_code == 303
            assert ("; secure" in entered.headers["set-cookie"].lower()) == secure, host


async def test_wrong_tokens_are_seen_in_the_log_and_not_told(shop: Fair, caplog: pytest.LogCaptureFixture) -> None:
    app = dashboard_app(shop.road, token=TOKEN)
    async with visitor(app, client="127.0.0.9") as one:
        await one.get("/login")
        form = {"csrf": one.cookies[CSRF], "name": "Ada", "token": "nearly-the-token"}
        assert (await one.post("/login", data=form)).status_code == 403
        assert (await one.get("/api/audit", headers={"authorization": "Bearer nearly-the-token"})).status_code == 401
        assert (await one.post("/login", data=form | {"token": TOKEN})).status_code == 303
    told = [record.getMessage() for record in caplog.records if record.name == "postroad"]
    assert told == ["a wrong token was given to the dashboard, from 127.0.0.9"] * 2


async def test_who_probes_needs_no_token_and_learns_nothing(shop: Fair, monkeypatch: pytest.MonkeyPatch) -> None:
    app = dashboard_app(shop.road, token=TOKEN)
    async with visitor(app, client="10.0.0.7", host="10.0.0.9") as kubelet:
        for path in PROBES:
            answer = await kubelet.get(path)
            assert (answer.status_code, answer.text, "set-cookie" in answer.headers) == (200, "ok\n", False), path

        async def out(*_: object) -> None:
            raise StoreUnavailable("The database at db:5432 is out.")

        monkeypatch.setattr("postroad.stores.migrations.require_current", out)
        assert (await kubelet.get("/livez")).status_code == 200
        answer = await kubelet.get("/readyz")
        assert (answer.status_code, "db:5432" in answer.text) == (503, False)


async def test_what_is_to_be_retried_is_found_by_the_job(shop: Fair, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be very many: nobody's request waits for them."""
    ids = await shop.sell("a", "b")
    await shop.park(ids)
    go, find = asyncio.Event(), operations.retryable_ids

    async def later(*given: Any) -> Any:
        await go.wait()
        return await find(*given)

    monkeypatch.setattr(operations, "retryable_ids", later)
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        job = (await local.post("/api/acts/outbox.retry_matching", json={})).json()["job"]
        assert (await local.get(f"/api/jobs/{job}")).json()["total"] is None
        assert "Looking for them" in (await local.get(f"/jobs/{job}")).text
        go.set()
        await asyncio.gather(*app.state.desk.jobs._tasks)
        found = (await local.get(f"/api/jobs/{job}")).json()
        assert (found["total"], found["done"], found["state"]) == (2, 2, "finished")
    await closing(app)


async def test_a_parked_event_makes_nothing_older_that_is_to_be_sent(shop: Fair) -> None:
    old, _ = await shop.sell("a", "b")
    await shop.park([old])
    async with shop.road.store.transaction() as connection:
        long_ago = "UPDATE postroad_outbox SET occurred_at = '2020-01-01T00:00:00.000000Z' WHERE event_id = :id"
        await connection.execute(text(long_ago), {"id": str(old)})
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        tile = (await local.get("/tiles")).text.partition("To be sent")[2].partition("</a>")[0]
        assert " d</small>" not in tile
        (outbox,) = (await local.get("/api/status")).json()["outboxes"]
        assert outbox["oldest_waiting_age"] < 3_600 < outbox["oldest_unsent_age"]
    await closing(app)


async def test_handlers_are_called_as_their_author_calls_them(shop: Fair) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        reactions = (await local.get("/api/topology")).json()["reactions"]
        assert {one["handler"] for one in reactions} == {"wrap", "hand_out"}
        assert "locals" not in (await local.get("/groups")).text
    await closing(app)


async def test_an_edited_copy_keeps_what_was_hidden(shop: Fair) -> None:
    (id,) = await shop.sell("a", cents=5, buyer={"card": "4111", "name": "Ada"})
    app = dashboard_app(shop.road, mask=["card"])
    async with visitor(app) as local:
        payload = '{"basket_id": "a", "cents": 6, "buyer": {"card": "***", "name": "Bea"}}'
        answer = await local.post("/api/acts/outbox.resend", json={"id": str(id), "payload": payload, "reason": "a"})
        new = UUID(answer.json()["go"].rpartition("/")[2])
    copy = await operations.outbox_event(shop.road.store, shop.road.outboxes, new)
    assert copy.payload == {"basket_id": "a", "cents": 6, "buyer": {"card": "4111", "name": "Bea"}}
    await closing(app)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/outbox?state=LOST", "state is 'LOST'"),
        ("/api/outbox?since=yesterday", "since is 'yesterday'"),
        ("/api/outbox?after=nonsense", "after is 'nonsense'"),
        ("/api/outbox/count?state=SENT", "cannot be retried"),
        ("/api/groups/wrapping?after=7", "neither a UUID nor a ULID"),
        ("/api/jobs/7", "no job 7"),
    ],
)
async def test_a_question_that_makes_no_sense_is_told_so(shop: Fair, path: str, told: str) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        answer = await local.get(path)
    assert answer.status_code == 409
    assert told in answer.json()["error"]


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("outbox.retry", b"[]", "The body cannot be read"),
        ("outbox.retry", b"\xff", "The body cannot be read"),
        ("outbox.retry", b"{}", "missing required field `ids`"),
        ("outbox.retry", b'{"ids": []}', "ids is empty"),
        ("outbox.retry", b'{"ids": ["x"], "also": 1}', "unknown field `also`"),
        ("outbox.skip", b'{"id": "x", "reason": " "}', "needs a reason"),
        ("inbox.retry", b'{"group": "wrapping", "ids": []}', "ids is empty"),
        ("inbox.retry", b'{"group": "wrapping", "ids": ["7"]}', "Copy the whole id"),
        ("inbox.discard", b'{"group": "wrapping", "ids": ["018f0000-0000-7000-8000-000000000000"]}', "needs a reason"),
        ("outbox.retry_matching", b'{"state": "SENT"}', "cannot be retried"),
        ("outbox.explode", b"{}", "There is no act"),
    ],
)
async def test_an_act_that_makes_no_sense_is_refused(shop: Fair, name: str, body: bytes, told: str) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app, content_type="application/json") as local:
        answer = await local.post(f"/api/acts/{name}", content=body)
    assert answer.status_code == 409
    assert told in answer.json()["error"]


async def test_the_document_describes_what_is_answered(shop: Fair) -> None:
    await shop.sell("a")
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        document = (await local.get("/api/openapi.json")).json()
        assert set(document["components"]["schemas"]["EventPage"]["properties"]) == set(
            (await local.get("/api/outbox")).json()
        )
        described = document["components"]["schemas"]["Status"]["properties"]
        assert set(described) == set((await local.get("/api/status")).json())
        assert f"/api/acts/{next(iter(ACTS))}" in document["paths"]
        reports = [document["components"]["schemas"][name]["properties"] for name in ("Report", "DoctorReport")]
        assert ["until" in reports[0], "database" in reports[1]] == [True, True]
    await closing(app)


async def test_long_lists_are_paged_in_the_api_too(shop: Fair) -> None:
    for _ in range(3):
        await shop.sell("a", delay=3600)
    await shop.sell(*["b"] * 60)
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        first = (await local.get("/api/aggregates/basket/b")).json()
        rest = (await local.get(f"/api/aggregates/basket/b?before={first[-1]['version']}")).json()
        assert [one["version"] for one in (*first, *rest)] == list(range(60, 0, -1))
        due = (await local.get("/api/scheduled")).json()
        later = (await local.get("/api/scheduled", params={"after": f"{due[0]['deliver_at']}~{due[0]['id']}"})).json()
        assert later == due[1:]
        await operations.pause_group(shop.road.store, shop.road.groups, "wrapping", actor="ann")
        await operations.resume_group(shop.road.store, "wrapping", actor="ann")
        newest, oldest = (await local.get("/api/audit")).json()
        assert (await local.get(f"/api/audit?before={newest['id']}")).json() == [oldest]
    await closing(app)


async def test_an_event_that_was_traced_leads_to_its_trace(shop: Fair) -> None:
    traced, untraced = await shop.sell("a", "b")
    async with shop.road.store.transaction() as connection:
        told = """UPDATE postroad_outbox SET attributes = '{"trace_id": "4bf9/../x"}' WHERE event_id = :id"""
        await connection.execute(text(told), {"id": str(traced)})
    for trace_url, link in (("https://traces.example/{trace_id}", "https://traces.example/4bf9%2F..%2Fx"), ("", "")):
        app = dashboard_app(shop.road, trace_url=trace_url)
        async with visitor(app) as local:
            assert (await local.get(f"/api/outbox/{traced}")).json()["trace"] == link
            assert (f'href="{link}"' in (await local.get(f"/outbox/{traced}")).text) == bool(link)
            assert "Its trace" not in (await local.get(f"/outbox/{untraced}")).text
        await closing(app)
    for wrong in ("javascript:alert('{trace_id}')", "https://traces.example/"):
        with pytest.raises(ConfigurationError, match="Write the address of a trace"):
            dashboard_app(shop.road, trace_url=wrong)


async def test_the_api_tells_who_reads_what(shop: Fair) -> None:
    await shop.road.broker.apply(
        Topology(("fair.basket.events",), (Subscription("fair.basket.events.press", "fair.basket.events"),))
    )
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        found = (await local.get("/api/topology")).json()
        assert found["service"] == "fair"
        assert {"basket.sold", "basket.wrapped"} <= set(found["topics"]["fair.basket.events"])
        readers = {one["group"]: one["here"] for one in found["readers"] if one["topic"] == "fair.basket.events"}
        assert readers == {"handing-out": True, "press": False, "wrapping": True}
        assert ("wrapping", "basket.sold") in [(one["group"], one["type"]) for one in found["reactions"]]
    await closing(app)


async def test_it_can_be_mounted_below_a_path(shop: Fair) -> None:
    ids = await shop.sell("a")
    await shop.park(ids)
    inner = dashboard_app(shop.road)
    app = Starlette(routes=[Mount("/ops", inner)])
    async with visitor(app) as local:
        text = (await local.get("/ops/outbox")).text
        assert 'href="/ops/static/dashboard.css"' in text
        assert 'href="/ops/outbox"' in text
        assert (await local.get("/ops/static/dashboard.css")).status_code == 200
        form = {"csrf": local.cookies[CSRF], "ids": str(ids[0])}
        done = await local.post("/ops/do/outbox.retry", data=form)
        assert done.headers["location"].startswith(f"/ops/outbox/{ids[0]}")
    await closing(inner)


async def test_what_was_found_is_shown_by_every_dashboard_and_who_asked_is_written_down(shop: Fair) -> None:
    here, elsewhere = dashboard_app(shop.road), dashboard_app(shop.road)
    async with visitor(here) as one, visitor(elsewhere) as other:
        assert (await other.get("/api/consistency")).json() == {"checked": None, "compared": None}
        assert (await other.get("/api/doctor")).json() is None
        for act in ("consistency.check", "doctor.examine"):
            job = (await one.post(f"/api/acts/{act}", json={"reason": "after the deploy"})).json()["job"]
            await asyncio.gather(*here.state.desk.jobs._tasks)
            assert (await one.get(f"/api/jobs/{job}")).json()["state"] == "finished"
        me = operations.this_user()
        found = (await other.get("/api/consistency")).json()
        assert (found["checked"]["actor"], found["checked"]["report"]["findings"]) == (me, [])
        assert (found["compared"]["actor"], found["compared"]["losses"]) == (me, [])
        assert (await other.get("/api/doctor")).json()["actor"] == me
        audited = [(one["actor"], one["action"], one["detail"]) for one in (await other.get("/api/audit")).json()]
        assert audited == [(me, act, "after the deploy") for act in ("doctor.examine", "consistency.check")]
    await closing(here)
    await closing(elsewhere)


async def test_a_consistency_page_says_what_was_not_looked_at(shop: Fair) -> None:
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        await results.keep(shop.road.store, results.VERIFY, [], actor="otto")
        page = (await local.get("/consistency")).text
        assert "fit together was not looked at" in page
        lost = [consistency.Loss("wrapping", "fair.basket.events", "basket.sold", 3, 1, [])] * consistency.MOST_KEPT
        await results.keep(shop.road.store, results.VERIFY, lost, actor="otto")
        assert "Only the first 100" in (await local.get("/consistency")).text
        await results.keep(shop.road.store, results.VERIFY, [], actor="otto")
        await results.keep(shop.road.store, results.CHECK, await consistency.check(shop.road), actor="cron")
        page = (await local.get("/consistency")).text
        assert "and each group got what was sent." in page
        assert "by cron" in page
        assert "0 handlings since" in page
    await closing(app)


async def test_a_broker_that_is_out_hides_nothing_else(shop: Fair, monkeypatch: pytest.MonkeyPatch) -> None:
    from postroad.errors import BrokerUnavailable

    async def out(*_: object, **__: object) -> Any:
        raise BrokerUnavailable("The broker cannot be reached. Is it running?")

    ids = await shop.sell("a")
    await shop.park(ids)
    monkeypatch.setattr(shop.road.broker, "subscriptions", out)
    app = dashboard_app(shop.road)
    async with visitor(app) as local:
        assert "cannot be reached" in (await local.get("/")).text
        for path in ("/outbox", f"/outbox/{ids[0]}", "/failures", "/groups", "/workers", "/topology"):
            assert (await local.get(path)).status_code == 200, path
        assert (await local.get("/dead")).status_code == 503
    await closing(app)


async def test_missing_tables_are_told_with_their_cure(tmp_path: Path) -> None:
    fair = Fair(tmp_path)
    fair.loop.close()
    app = dashboard_app(fair.road)
    async with visitor(app) as local:
        answer = await local.get("/")
    assert answer.status_code == 503
    assert "postroad db migrate" in answer.text
    await fair.road.aclose()
