"""The service over HTTP. Each route is one transaction of `orders.py`; who is asking stands in X-User-Id.

There is no login: this is an example, and the header is taken at its word.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, FastAPI, Header, Response
from fastapi.responses import FileResponse, StreamingResponse
from sqlalchemy import RowMapping

from examples.marketplace import catalog, flow, models, monitor, problems
from examples.marketplace.consumers import QUEUES
from examples.marketplace.events import TOPIC
from examples.marketplace.orders import find
from examples.marketplace.refusals import NotAllowed, OrderNotFound, ProductNotFound, ProductSold, Refusal, WrongStatus
from examples.marketplace.shop import Shop
from postroad.errors import OperationRefused
from postroad.operations import dead_page, find_dead, retry_dead

_PAGE: Final = Path(__file__).with_name("page.html")
_CONSUMERS: Final = {queue.group: queue.consumer for queue in QUEUES}

Group = Literal["inventory", "fulfillment", "status-sync", "timeout"]
User = Annotated[int, Header(alias="X-User-Id", gt=0, description="Who is asking.", examples=[10001])]


def trace_id(
    response: Response,
    x_trace_id: Annotated[
        str | None,
        Header(max_length=64, pattern=r"^[\w.:-]+$", description="Goes along with every event that follows."),
    ] = None,
) -> str:
    trace = x_trace_id or f"trace-{uuid.uuid4().hex[:16]}"
    response.headers["X-Trace-Id"] = trace
    return trace


Trace = Annotated[str, Depends(trace_id)]


class DeadLetterNotFound(Refusal):
    status, kind, title = 404, "dead-letter-not-found", "There is no such dead letter"


def create_app(shop: Shop, *, run: bool = True) -> FastAPI:
    """`run`: relay and consumers in this process too. The sweep always is: any number of them does no harm."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await shop.prepare()
            async with shop.running(relay=run, consumers=run):
                yield
        finally:
            await shop.aclose()

    app = FastAPI(
        title="Second-hand marketplace",
        version="1.0",
        summary="Orders that must be paid in time, and the events that follow from them.",
        lifespan=lifespan,
    )
    problems.install(app)
    _products(app, shop)
    _orders(app, shop)
    _operations(app, shop)
    return app


def _products(app: FastAPI, shop: Shop) -> None:
    @app.post("/products", status_code=201, tags=["products"])
    async def offer(product: models.NewProduct, user: User) -> models.Product:
        """Offer something for sale."""
        row = await shop.transact(lambda s: catalog.offer(s, user, product.title, product.price, shop.now()))
        return models.Product.model_validate(dict(row))

    @app.get("/products", tags=["products"])
    async def products() -> list[models.Product]:
        """The latest hundred."""
        async with shop.road.store.reading() as connection:
            return [models.Product.model_validate(dict(row)) for row in await catalog.all_products(connection)]

    @app.get("/products/{product_id}", responses=problems.may_refuse(ProductNotFound), tags=["products"])
    async def product(product_id: int) -> models.Product:
        async with shop.road.store.reading() as connection:
            return models.Product.model_validate(dict(await catalog.product(connection, product_id)))


def _orders(app: FastAPI, shop: Shop) -> None:
    steps = problems.may_refuse(OrderNotFound, NotAllowed, WrongStatus)

    def shown(row: RowMapping) -> models.Order:
        return models.Order.model_validate({**row, "pay_before": row["create_time"] + shop.orders.payment_time})

    @app.post(
        "/orders",
        status_code=201,
        responses=problems.may_refuse(ProductNotFound, ProductSold, NotAllowed),
        tags=["orders"],
    )
    async def place(order: models.NewOrder, user: User, trace: Trace) -> models.Order:
        """Buy a product. Of many who try at the same time, one gets it."""
        return shown(await shop.transact(lambda s: shop.orders.place(s, user, order.product_id, trace)))

    @app.get("/orders", tags=["orders"])
    async def orders() -> list[models.Order]:
        """The latest fifty."""
        async with shop.road.store.reading() as connection:
            return [shown(row) for row in await catalog.latest_orders(connection)]

    @app.get("/orders/{order_id}", responses=problems.may_refuse(OrderNotFound), tags=["orders"])
    async def order(order_id: int) -> models.Order:
        return shown(await shop.transact(lambda s: find(s, order_id)))

    @app.post("/orders/{order_id}/pay", responses=steps, tags=["orders"])
    async def pay(order_id: int, user: User, trace: Trace) -> models.Order:
        """pending → paid, by its buyer."""
        return shown(await shop.transact(lambda s: shop.orders.pay(s, user, order_id, trace)))

    @app.post("/orders/{order_id}/ship", responses=steps, tags=["orders"])
    async def ship(order_id: int, user: User, trace: Trace) -> models.Order:
        """paid → shipped, by its seller."""
        return shown(await shop.transact(lambda s: shop.orders.ship(s, user, order_id, trace)))

    @app.post("/orders/{order_id}/complete", responses=steps, tags=["orders"])
    async def complete(order_id: int, user: User, trace: Trace) -> models.Order:
        """shipped → completed, by its buyer."""
        return shown(await shop.transact(lambda s: shop.orders.complete(s, user, order_id, trace)))

    @app.post("/orders/{order_id}/cancel", responses=steps, tags=["orders"])
    async def cancel(order_id: int, user: User) -> models.Order:
        """pending → cancelled, by its buyer; the product is on sale again."""
        return shown(await shop.transact(lambda s: shop.orders.cancel(s, user, order_id)))

    @app.get("/buyers/{buyer_id}/credit", tags=["orders"])
    async def credit(buyer_id: int) -> models.Credit:
        """What cancelling and not paying have cost; counted anew whenever an order ends."""
        async with shop.road.store.reading() as connection:
            return models.Credit.model_validate(await catalog.credit_of(connection, buyer_id))


def _operations(app: FastAPI, shop: Shop) -> None:
    watched_flow = flow.Flow(shop)

    @app.get("/monitor", tags=["operations"])
    async def watched() -> dict[str, Any]:
        """Queues, rates, dead letters, and what there is to worry about."""
        return (await monitor.overview(shop)).as_json()

    @app.get("/dead-letters", tags=["operations"])
    async def dead_letters() -> list[models.DeadLetter]:
        return [
            models.DeadLetter(
                id=dead.id,
                event_id=dead.event_id,
                event_type=dead.type,
                consumer=_CONSUMERS.get(dead.group, dead.group),
                reason=dead.reason,
                died_at=dead.died_at,
                message=dead.payload,
            )
            for dead in await dead_page(shop.road.broker, [TOPIC], limit=100)
        ]

    @app.post("/dead-letters/{letter_id}/replay", responses=problems.may_refuse(), tags=["operations"])
    async def replay(letter_id: str) -> models.Replayed:
        """Back to the queue it came from, with all attempts before it."""
        try:
            found = await find_dead(shop.road.broker, [TOPIC], [letter_id])
        except OperationRefused:
            raise DeadLetterNotFound(f"There is no dead letter {letter_id}.") from None
        return models.Replayed(
            replayed=await retry_dead(shop.road.store, shop.road.broker, found, actor="api", reason="by hand")
        )

    @app.put("/consumers/{group}/broken", tags=["operations"])
    async def break_it(group: Group, broken: models.Broken) -> models.Broken:
        """Let a consumer fail on purpose: retries, then dead letters, and everything else goes on."""
        (shop.consumers.broken.add if broken.broken else shop.consumers.broken.discard)(group)
        return broken

    @app.get("/flow", tags=["operations"], response_class=StreamingResponse)
    async def stream() -> StreamingResponse:
        """Server-sent events: the shop as it stands, whenever something has changed."""
        return StreamingResponse(watched_flow.changes(), media_type="text/event-stream")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_PAGE)
