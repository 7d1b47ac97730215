"""What goes over HTTP: camelCase like the events, money as decimal text."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from examples.marketplace.orders import OrderStatus, ProductStatus

# Text in JSON, so that no client's double rounds it.
Price = Annotated[Decimal, Field(gt=0, max_digits=10, decimal_places=2, examples=["88.50"])]


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class NewProduct(_Camel):
    title: Annotated[str, Field(min_length=1, max_length=120, examples=["Bicycle, hardly used"])]
    price: Price


class Product(_Camel):
    id: Annotated[int, Field(examples=[7])]
    seller_id: Annotated[int, Field(examples=[10002])]
    title: Annotated[str, Field(examples=["Bicycle, hardly used"])]
    price: Price
    status: Annotated[ProductStatus, Field(examples=["on_sale"])]
    create_time: datetime


class NewOrder(_Camel):
    product_id: Annotated[int, Field(gt=0, examples=[7])]


class Order(_Camel):
    id: Annotated[int, Field(examples=[900001])]
    order_no: Annotated[str, Field(examples=["202602041030001234"])]
    buyer_id: Annotated[int, Field(examples=[10001])]
    seller_id: Annotated[int, Field(examples=[10002])]
    product_id: Annotated[int, Field(examples=[7])]
    quantity: Annotated[int, Field(examples=[1])]
    price: Price
    total_amount: Price
    status: Annotated[OrderStatus, Field(examples=["pending"])]
    cancel_reason: Annotated[str | None, Field(examples=["timeout"])] = None
    create_time: datetime
    pay_time: datetime | None = None
    ship_time: datetime | None = None
    complete_time: datetime | None = None
    cancel_time: datetime | None = None
    pay_before: Annotated[datetime, Field(description="When an unpaid order is cancelled.")]


class Credit(_Camel):
    buyer_id: Annotated[int, Field(examples=[10001])]
    completed: int
    cancelled: int
    timed_out: int
    score: Annotated[int, Field(ge=0, le=100, examples=[90])]


class DeadLetter(_Camel):
    id: str
    event_id: str
    event_type: str
    consumer: str
    reason: str
    died_at: datetime
    message: Any


class Broken(_Camel):
    broken: bool


class Replayed(_Camel):
    replayed: int
