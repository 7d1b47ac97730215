"""The four events in their frozen JSON form. What stands here is the body of the message, byte for byte.

The envelope is the same for all; each payload has its own fields, and always the order's id and number.
An event's id follows from what happened to which order, so the same step can never be told under two ids.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

from postroad import event
from postroad.message import id_from_key

SOURCE: Final = "marketplace"
TOPIC: Final = "market.order.events"
AGGREGATE: Final = "Order"

# A JSON number, as agreed. Within DECIMAL(10, 2) every amount survives the way through a double and back.
Amount = Annotated[
    Decimal, Field(max_digits=10, decimal_places=2), PlainSerializer(float, return_type=float, when_used="json")
]


class Frozen(BaseModel):
    """snake_case here, camelCase on the wire."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class OrderFacts(Frozen):
    """What every payload says."""

    order_id: int
    order_no: str


class CreatedFacts(OrderFacts):
    buyer_id: int
    seller_id: int
    product_id: int
    quantity: int
    price: Amount
    total_amount: Amount


class PaidFacts(OrderFacts):
    pay_time: datetime
    amount: Amount


class StatusFacts(OrderFacts):
    old_status: str
    new_status: str
    changed_at: datetime


class TimeoutFacts(OrderFacts):
    create_time: datetime


Facts = TypeVar("Facts", bound=OrderFacts)


class OrderEvent(Frozen, Generic[Facts]):
    event_id: UUID
    event_type: str
    aggregate_type: Literal["Order"] = AGGREGATE
    aggregate_id: int
    occurred_at: datetime
    trace_id: str
    payload: Facts

    @model_validator(mode="after")
    def _one_order(self) -> "OrderEvent[Facts]":
        if self.aggregate_id != self.payload.order_id:
            raise ValueError(f"aggregateId {self.aggregate_id} is not the payload's orderId {self.payload.order_id}")
        return self

    @classmethod
    def of(cls, payload: Facts, *, trace_id: str, at: datetime) -> Any:
        """The event, with the id that `step` gives it."""
        event_type = cls.model_fields["event_type"].default
        return cls(
            event_id=id_from_key(SOURCE, event_type, step(payload)),
            event_type=event_type,
            aggregate_id=payload.order_id,
            occurred_at=at.astimezone(UTC).replace(microsecond=0),
            trace_id=trace_id,
            payload=payload,
        )


@event("ORDER_CREATED", topic=TOPIC, aggregate=AGGREGATE, key="aggregate_id")
class OrderCreated(OrderEvent[CreatedFacts]):
    event_type: Literal["ORDER_CREATED"] = "ORDER_CREATED"


@event("ORDER_PAID", topic=TOPIC, aggregate=AGGREGATE, key="aggregate_id")
class OrderPaid(OrderEvent[PaidFacts]):
    event_type: Literal["ORDER_PAID"] = "ORDER_PAID"


@event("ORDER_STATUS_CHANGED", topic=TOPIC, aggregate=AGGREGATE, key="aggregate_id")
class OrderStatusChanged(OrderEvent[StatusFacts]):
    event_type: Literal["ORDER_STATUS_CHANGED"] = "ORDER_STATUS_CHANGED"


@event("ORDER_TIMEOUT", topic=TOPIC, aggregate=AGGREGATE, key="aggregate_id")
class OrderTimeout(OrderEvent[TimeoutFacts]):
    event_type: Literal["ORDER_TIMEOUT"] = "ORDER_TIMEOUT"


def step(payload: OrderFacts) -> str:
    """What happened, once in the life of an order: the key that gives the event its id."""
    if isinstance(payload, StatusFacts):
        return f"{payload.order_id}:{payload.old_status}->{payload.new_status}"
    return str(payload.order_id)
