"""The service over HTTP: its answers, its refusals, its document, its page."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from examples.marketplace import flow
from examples.marketplace.api import create_app
from examples.marketplace.consumers import QUEUES
from examples.marketplace.schema import shipments
from examples.marketplace.shop import Shop
from postroad.errors import BrokerUnavailable
from tests.support.marketplace import BUYER, OTHER_BUYER, PLACES, SELLER, eventually, outbox, rows

everywhere = pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)


@pytest.fixture
async def client(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(shop), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


def by(user: int, **headers: str) -> dict[str, str]:
    return {"X-User-Id": str(user), **headers}


async def offered(client: httpx.AsyncClient, price: str = "88.50") -> int:
    answer = await client.post("/products", json={"title": "Bicycle", "price": price}, headers=by(SELLER))
    assert answer.status_code == 201
    return int(answer.json()["id"])


async def bought(client: httpx.AsyncClient) -> dict[str, Any]:
    product = await offered(client)
    return dict((await client.post("/orders", json={"productId": product}, headers=by(BUYER))).json())


@everywhere
async def test_from_offer_to_completion(client: httpx.AsyncClient, shop: Shop) -> None:
    product = await offered(client)
    answer = await client.post("/orders", json={"productId": product}, headers=by(BUYER, **{"X-Trace-Id": "trace-7"}))
    order = answer.json()
    assert (answer.status_code, answer.headers["X-Trace-Id"]) == (201, "trace-7")
    assert (order["id"], order["status"], order["totalAmount"]) == (900_001, "pending", "88.50")
    assert json.loads((await outbox(shop))[0]["payload"])["traceId"] == "trace-7"
    for step, user, status in (("pay", BUYER, "paid"), ("ship", SELLER, "shipped"), ("complete", BUYER, "completed")):
        answer = await client.post(f"/orders/{order['id']}/{step}", headers=by(user))
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert (await client.get(f"/orders/{order['id']}")).json()["status"] == "completed"
    assert (await client.get(f"/products/{product}")).json()["status"] == "sold"
    credit = (await client.get(f"/buyers/{BUYER}/credit")).json()
    assert credit == {"buyerId": BUYER, "completed": 1, "cancelled": 0, "timedOut": 0, "score": 100}


async def test_cancelling_puts_the_product_back_and_costs_credit(client: httpx.AsyncClient, shop: Shop) -> None:
    order = await bought(client)
    answer = await client.post(f"/orders/{order['id']}/cancel", headers=by(BUYER))
    assert (answer.json()["status"], answer.json()["cancelReason"]) == ("cancelled", "buyer")
    assert (await client.get(f"/products/{order['productId']}")).json()["status"] == "on_sale"
    assert (await client.get(f"/buyers/{BUYER}/credit")).json()["score"] == 95
    again = await client.post("/orders", json={"productId": order["productId"]}, headers=by(OTHER_BUYER))
    assert again.status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "user", "body", "status", "kind"),
    [
        ("GET", "/products/77", BUYER, None, 404, "product-not-found"),
        ("POST", "/orders", BUYER, {"productId": 77}, 404, "product-not-found"),
        ("POST", "/orders", OTHER_BUYER, {"productId": 1}, 409, "product-sold"),
        ("POST", "/orders", SELLER, {"productId": 1}, 403, "not-allowed"),
        ("POST", "/orders", BUYER, {"productId": "x"}, 422, "invalid-request"),
        ("POST", "/orders/77/pay", BUYER, None, 404, "order-not-found"),
        ("POST", "/orders/900001/pay", OTHER_BUYER, None, 403, "not-allowed"),
        ("POST", "/orders/900001/ship", BUYER, None, 403, "not-allowed"),
        ("POST", "/orders/900001/ship", SELLER, None, 409, "wrong-status"),
        ("POST", "/orders/900001/complete", BUYER, None, 409, "wrong-status"),
        ("POST", "/products", SELLER, {"title": "x", "price": "0"}, 422, "invalid-request"),
        ("POST", "/products", SELLER, {"title": "x", "price": "1.005"}, 422, "invalid-request"),
        ("GET", "/nothing", BUYER, None, 404, "http"),
    ],
)
async def test_a_refusal_is_a_problem_document(
    client: httpx.AsyncClient, method: str, path: str, user: int, body: Any, status: int, kind: str
) -> None:
    assert (await bought(client))["id"] == 900_001
    answer = await client.request(method, path, json=body, headers=by(user))
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "instance"}
    assert (answer.status_code, problem["status"]) == (status, status)
    assert (problem["type"], problem["instance"]) == (f"urn:marketplace:problem:{kind}", path)


@pytest.mark.parametrize("step", ["pay", "cancel"])
async def test_a_second_time_is_refused(client: httpx.AsyncClient, step: str) -> None:
    order = await bought(client)
    assert (await client.post(f"/orders/{order['id']}/{step}", headers=by(BUYER))).status_code == 200
    again = await client.post(f"/orders/{order['id']}/{step}", headers=by(BUYER))
    assert again.json()["type"] == "urn:marketplace:problem:wrong-status"


async def test_what_breaks_inside_is_a_problem_without_details(
    client: httpx.AsyncClient, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(shop.orders, "place", fail)
    answer = await client.post("/orders", json={"productId": 1}, headers=by(BUYER))
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "1234" not in answer.text


async def test_a_broker_that_is_away_is_told_where_it_matters(
    client: httpx.AsyncClient, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*arguments: Any, **options: Any) -> Any:
        raise BrokerUnavailable("It is away. Start it.")

    for question in ("dead_letters", "depth"):
        monkeypatch.setattr(shop.road.broker, question, away)
    answer = await client.get("/monitor")
    assert answer.status_code == 200
    seen = answer.json()
    assert seen["dead"] is None
    assert {queue["messages"] for queue in seen["queues"]} == {None}
    assert f"{QUEUES[0].name}: unknown" in seen["alerts"]
    assert "order.dlq.queue: unknown" in seen["alerts"]
    for answer in (await client.get("/dead-letters"), await client.post("/dead-letters/x/replay")):
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["type"] == "urn:marketplace:problem:unavailable"


async def test_a_letter_that_is_not_there_is_a_problem_document(client: httpx.AsyncClient) -> None:
    answer = await client.post("/dead-letters/nobody/replay")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:marketplace:problem:dead-letter-not-found")


async def test_a_shop_that_breaks_is_closed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Shop] = []

    async def note() -> None:
        closed.append(shop)

    async def break_down() -> None:
        app = create_app(shop, run=False)
        async with app.router.lifespan_context(app):
            raise KeyError

    with monkeypatch.context() as watched:
        watched.setattr(shop, "aclose", note)
        with pytest.raises(KeyError):
            await break_down()
    assert closed == [shop]


async def test_the_document_has_examples_and_names_every_refusal(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    order = document["components"]["schemas"]["Order"]["properties"]
    assert order["orderNo"]["examples"] == ["202602041030001234"]
    conflict = document["paths"]["/orders"]["post"]["responses"]["409"]["content"]["application/problem+json"]
    assert conflict["examples"]["product-sold"]["value"]["status"] == 409
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert route["tags"], f"{method} {path}"


async def test_the_page_is_one_file_that_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/")).text
    assert "Second-hand marketplace" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


async def test_the_flow_tells_every_change(client: httpx.AsyncClient, shop: Shop) -> None:
    order = await bought(client)
    async with shop.running(sweep=False):
        changes = flow.Flow(shop).changes()
        async with asyncio.timeout(30):
            async for line in changes:
                picture = json.loads(line.removeprefix("data: "))
                created = next(one for one in picture["events"] if one["event_type"] == "ORDER_CREATED")
                # The consumer may be done before the relay has heard that the event was taken.
                if created["consumer"] and created["status"] == "SENT":
                    break
        await changes.aclose()
    assert created["consumer"] == "inventory-consumer"
    assert picture["orders"][0]["id"] == order["id"]
    assert next(one for one in picture["events"] if one["event_type"] == "ORDER_TIMEOUT")["deliver_at"]


async def test_a_consumer_can_be_broken_on_purpose_and_mended(client: httpx.AsyncClient, shop: Shop) -> None:
    await client.put("/consumers/fulfillment/broken", json={"broken": True})
    order = await bought(client)
    await client.post(f"/orders/{order['id']}/pay", headers=by(BUYER))
    async with shop.running(sweep=False):
        letters = await eventually(lambda: letters_of(client))
        assert "broken on purpose" in letters[0]["reason"]
        await client.put("/consumers/fulfillment/broken", json={"broken": False})
        await client.post(f"/dead-letters/{letters[0]['id']}/replay")
        await eventually(lambda: rows(shop, shipments))
    assert (await client.put("/consumers/nobody/broken", json={"broken": True})).status_code == 422


async def letters_of(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await client.get("/dead-letters")).json())
