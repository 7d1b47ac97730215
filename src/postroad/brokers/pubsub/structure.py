"""Topics, subscriptions and schemas: what is there, what is missing, what differs."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.field_mask_pb2 import FieldMask

from postroad.brokers.base import Change, Schema, Subscription, Topology
from postroad.brokers.pubsub.address import Address, short
from postroad.brokers.pubsub.dead import monitor
from postroad.brokers.pubsub.emulator import Emulator
from postroad.brokers.pubsub.line import Line, Rejection, missing, raw
from postroad.errors import ConfigurationError

_DAY: Final = 86_400
TOPIC_RETENTION: Final = 7 * _DAY
"""So that a subscription can be set back to what it has acknowledged, and a new one to before it was there."""
LEAST_DEADLINE, MOST_DEADLINE = 10, 600
_RETRY: Final = 10, 600
"""Seconds: the shortest and the longest pause before Pub/Sub itself delivers again."""
_ATTEMPTS: Final = 5
"""Deliveries after which Pub/Sub itself dead-letters: those that no worker has survived."""
_NAME: Final = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}")
_ENCODINGS: Final = {"avro": ("AVRO", "JSON"), "protobuf": ("PROTOCOL_BUFFER", "BINARY")}

_Topic: Final = raw("Topic")
_Subscription: Final = raw("Subscription")


@dataclass(frozen=True, slots=True)
class _Setting:
    field: str
    told: str
    show: Callable[[Any], str]
    fixed: bool = False
    """It cannot be changed on a live subscription."""

    def difference(self, live: Any, ours: Any) -> str:
        return f"{self.told}: {self.show(getattr(live, self.field))} → {self.show(getattr(ours, self.field))}"


def _seconds(value: Any) -> str:
    return f"{value.seconds:,} s"


def _yes(value: bool) -> str:
    return "on" if value else "off"


def _dead_letters(policy: Any) -> str:
    return f"{short(policy.dead_letter_topic) or 'none'} after {policy.max_delivery_attempts} deliveries"


_SETTINGS: Final = (
    _Setting("topic", "topic", short, fixed=True),
    _Setting("enable_message_ordering", "message ordering", _yes, fixed=True),
    _Setting("enable_exactly_once_delivery", "exactly-once delivery", _yes),
    _Setting("ack_deadline_seconds", "ack deadline", lambda value: f"{value} s"),
    _Setting("message_retention_duration", "retention", _seconds),
    _Setting("retry_policy", "retry", lambda v: f"{_seconds(v.minimum_backoff)} to {_seconds(v.maximum_backoff)}"),
    _Setting("dead_letter_policy", "dead letters", _dead_letters),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    change: Change
    method: str
    request: Any
    answer: Any
    about: str


class Structure:
    """Lives in the connection's thread."""

    def __init__(self, line: Line, address: Address) -> None:
        self._line, self._address = line, address
        self._emulator = Emulator(line) if address.emulator else None

    async def plan(self, wanted: Topology) -> list[Change]:
        return [step.change for step in await self._steps(wanted)]

    async def apply(self, wanted: Topology) -> list[Change]:
        steps = await self._steps(wanted)
        for step in steps:
            try:
                await self._line.ask(step.method, step.request, step.answer, about=step.about)
            except Rejection as rejection:
                if rejection.code is not grpc.StatusCode.ALREADY_EXISTS:
                    raise ConfigurationError(f"{step.change.kind} {step.change.name!r}: {rejection}") from None
                continue  # another process applies the same at the same time
            if self._emulator and step.method == "Subscriber/CreateSubscription":
                await self._emulator.remember_beginning(step.request.name)
        return [step.change for step in steps]

    async def drop(self, name: str) -> None:
        path = self._address.subscription(name)
        request = raw("DeleteSubscriptionRequest")(subscription=path)
        try:
            await self._line.ask("Subscriber/DeleteSubscription", request, Empty, about="subscription")
        except Rejection as rejection:
            if not missing(rejection):  # somebody else was faster
                raise
        if self._emulator:
            await self._emulator.forget_beginning(path)

    async def find(self, name: str) -> Any | None:
        """The subscription as it is."""
        request = raw("GetSubscriptionRequest")(subscription=self._address.subscription(name))
        return await self._get("Subscriber/GetSubscription", request, _Subscription, "subscription")

    async def subscriptions(self) -> list[Subscription]:
        """Those that are named for their topic."""
        request = raw("ListSubscriptionsRequest")(project=f"projects/{self._address.project}", page_size=1_000)
        found = []
        while True:
            answer = await self._line.ask(
                "Subscriber/ListSubscriptions", request, raw("ListSubscriptionsResponse"), about="project"
            )
            found += [one for each in answer.subscriptions if (one := _told(each)) is not None]
            if not answer.next_page_token:
                return sorted(found, key=lambda one: one.name)
            request.page_token = answer.next_page_token

    # -- what is to be done ------------------------------------------------------------------------------

    async def _steps(self, wanted: Topology) -> list[_Step]:
        topics = dict.fromkeys((*wanted.topics, *(subscription.topic for subscription in wanted.subscriptions)))
        schemas = {schema.topic: schema for schema in wanted.schemas}
        for schema in wanted.schemas:
            topics.setdefault(schema.topic)
        subscriptions = [(self.described(one), f"of topic {one.topic}") for one in wanted.subscriptions]
        # Topics before what subscribes to them; asked all at once, because each answer may take a while.
        found = await asyncio.gather(
            *(self._schema_steps(schema) for schema in wanted.schemas),
            *(self._topic_steps(topic, schemas.get(topic)) for topic in topics),
            *(self._subscription_steps(described, detail) for described, detail in subscriptions),
        )
        return [step for steps in found for step in steps]

    async def _topic_steps(self, name: str, schema: Schema | None) -> list[_Step]:
        dead = f"{name}.dlq"
        _check_name("topic", dead)
        ours = self._topic(name)
        if schema is not None:
            path, encoding = self._address.schema(schema.name), _ENCODINGS[schema.kind][1]
            ours.schema_settings.CopyFrom(raw("SchemaSettings")(schema=path, encoding=encoding))
        mine, theirs, watching = await asyncio.gather(
            self._find_topic(name),
            self._find_topic(dead),
            self._subscription_steps(self._monitor(name), "of the dead letters"),
        )
        steps: list[_Step] = [_created("topic", name, ours)] if mine is None else self._topic_changes(mine, ours)
        if theirs is None:
            steps.append(_created("topic", dead, self._topic(dead), "for the dead letters"))
        return [*steps, *watching]

    def _topic_changes(self, live: Any, ours: Any) -> list[_Step]:
        fields, details = [], []
        if live.message_retention_duration != ours.message_retention_duration:
            told = f"{live.message_retention_duration.seconds:,} s → {ours.message_retention_duration.seconds:,} s"
            fields, details = ["message_retention_duration"], [f"retention: {told}"]
        if ours.schema_settings.schema and live.schema_settings.schema != ours.schema_settings.schema:
            fields.append("schema_settings")
            details.append(
                f"schema: {short(live.schema_settings.schema) or 'none'} → {short(ours.schema_settings.schema)}"
            )
        if not fields:
            return []
        request = raw("UpdateTopicRequest")(topic=ours, update_mask=FieldMask(paths=fields))
        change = Change("update", "topic", short(ours.name), "; ".join(details))
        return [_Step(change, "Publisher/UpdateTopic", request, _Topic, "topic.name")]

    async def _subscription_steps(self, ours: Any, detail: str) -> list[_Step]:
        name = short(ours.name)
        _check_name("subscription", name)
        live = await self.find(name)
        if live is None:
            change = Change("create", "subscription", name, detail)
            return [_Step(change, "Subscriber/CreateSubscription", ours, _Subscription, "name")]
        different = [one for one in _SETTINGS if getattr(live, one.field) != getattr(ours, one.field)]
        told = [one.difference(live, ours) for one in different]
        if any(one.fixed for one in different):
            raise ConfigurationError(
                f"Subscription {name!r} exists with other settings, which Pub/Sub cannot change ({'; '.join(told)}). "
                "Delete it, which drops what it holds, or choose another group."
            )
        if not different:
            return []
        request = raw("UpdateSubscriptionRequest")(
            subscription=ours, update_mask=FieldMask(paths=[one.field for one in different])
        )
        change = Change("update", "subscription", name, "; ".join(told))
        return [_Step(change, "Subscriber/UpdateSubscription", request, _Subscription, "subscription.name")]

    async def _schema_steps(self, schema: Schema) -> list[_Step]:
        if schema.kind not in _ENCODINGS:
            raise ConfigurationError(f"Schema {schema.name!r} is of kind {schema.kind!r}. Use avro or protobuf.")
        _check_name("schema", schema.name)
        path = self._address.schema(schema.name)
        request = raw("GetSchemaRequest")(name=path, view="FULL")
        live = await self._get("SchemaService/GetSchema", request, raw("Schema"), "name")
        if live is None:
            asked = raw("CreateSchemaRequest")(
                parent=f"projects/{self._address.project}",
                schema_id=schema.name,
                schema=raw("Schema")(type_=_ENCODINGS[schema.kind][0], definition=schema.definition),
            )
            change = Change("create", "schema", schema.name, f"{schema.kind}, of topic {schema.topic}")
            return [_Step(change, "SchemaService/CreateSchema", asked, raw("Schema"), "parent")]
        if live.definition != schema.definition:
            raise ConfigurationError(
                f"Schema {schema.name!r} exists with another definition. Give the new one a name of its own."
            )
        return []

    # -- how it should be --------------------------------------------------------------------------------

    def described(self, wanted: Subscription) -> Any:
        if not LEAST_DEADLINE <= wanted.ack_deadline <= MOST_DEADLINE:
            raise ConfigurationError(
                f"Subscription {wanted.name!r}: ack_deadline is {wanted.ack_deadline:g} s. "
                f"Pub/Sub takes {LEAST_DEADLINE} to {MOST_DEADLINE} s."
            )
        described = _Subscription(
            name=self._address.subscription(wanted.name),
            topic=self._address.topic(wanted.topic),
            ack_deadline_seconds=round(wanted.ack_deadline),
            enable_message_ordering=True,
            enable_exactly_once_delivery=True,
        )
        described.message_retention_duration.seconds = round(wanted.retention)
        described.retry_policy.minimum_backoff.seconds, described.retry_policy.maximum_backoff.seconds = _RETRY
        # By default a subscription that nobody reads for 31 days is deleted, with all that waits in it.
        described.expiration_policy.SetInParent()
        if not self._address.emulator:
            # The emulator's subscriptions stand still for ever when they dead-letter a message that has a key.
            described.dead_letter_policy.CopyFrom(self.dead_letter_policy(wanted))
        return described

    def dead_letter_policy(self, wanted: Subscription) -> Any:
        return raw("DeadLetterPolicy")(
            dead_letter_topic=self._address.topic(wanted.dead_letter_topic),
            max_delivery_attempts=wanted.max_attempts or _ATTEMPTS,
        )

    def _monitor(self, topic: str) -> Any:
        described = _Subscription(
            name=self._address.subscription(monitor(topic)),
            topic=self._address.topic(f"{topic}.dlq"),
            ack_deadline_seconds=60,
        )
        # The longest there is: a dead letter waits for a person.
        described.message_retention_duration.seconds = (7 if self._address.emulator else 31) * _DAY
        described.expiration_policy.SetInParent()
        return described

    def _topic(self, name: str) -> Any:
        topic = _Topic(name=self._address.topic(name))
        topic.message_retention_duration.seconds = TOPIC_RETENTION
        return topic

    async def _find_topic(self, name: str) -> Any | None:
        request = raw("GetTopicRequest")(topic=self._address.topic(name))
        return await self._get("Publisher/GetTopic", request, _Topic, "topic")

    async def _get(self, method: str, request: Any, answer: Any, about: str) -> Any | None:
        try:
            return await self._line.ask(method, request, answer, about=about)
        except Rejection as rejection:
            if missing(rejection):
                return None
            raise


def _created(kind: str, name: str, topic: Any, detail: str = "") -> _Step:
    return _Step(Change("create", kind, name, detail), "Publisher/CreateTopic", topic, _Topic, "name")


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"Pub/Sub takes no {kind} named {name!r}. "
            "It needs 3 to 255 letters, digits and . _ ~ % + -, begins with a letter, and not with goog."
        )


def _told(live: Any) -> Subscription | None:
    name, topic = short(live.name), short(live.topic)
    group = name.removeprefix(f"{topic}.")
    if group == name or "." in group:
        return None
    return Subscription(
        name,
        topic,
        ack_deadline=float(live.ack_deadline_seconds),
        retention=float(live.message_retention_duration.seconds),
        max_attempts=live.dead_letter_policy.max_delivery_attempts,
    )
