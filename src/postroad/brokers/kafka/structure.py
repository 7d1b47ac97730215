"""Topics and groups: what is there, what is missing, and what must not be used as it is."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from postroad.brokers.base import Change, Concern, Subscription, Topology
from postroad.brokers.kafka.address import ANSWER_SECONDS, Address
from postroad.brokers.kafka.client import REQUEST_SECONDS, Client, Rejection
from postroad.brokers.kafka.reader import Reader
from postroad.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfigurationError,
    SubscriptionMissing,
    UnsupportedByBroker,
)

_DAY: Final = 86_400.0
_PAUSE: Final = 0.02
_RETENTION: Final = "retention.ms"
_CLEANUP: Final = "cleanup.policy"
_IN_SYNC: Final = "min.insync.replicas"
_ENOUGH: Final = 2
SNAPSHOT: Final = "@"
"""Stands between a subscription and the name of a snapshot: together they are a group without members."""


class Structure:
    def __init__(self, client: Client, reader: Reader, address: Address) -> None:
        self._client, self._reader, self._address = client, reader, address

    # -- what is there -----------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> int:
        return await self._client.partitions(topic)

    def objection(self, topic: str, partitions: int) -> str:
        """Why a topic must not be used, if so."""
        agreed = self._address.partitions
        if agreed in (0, partitions):
            return ""
        return (
            f"Topic {topic!r} has {partitions} partitions, and {agreed} are agreed on: keys would move to other ones, "
            f"and lose their order. If it has always been so, add partitions={partitions} to the broker URL; "
            "if it has grown, let its consumers finish and move to a new topic."
        )

    async def positions(self, group: str) -> dict[int, int]:
        """The committed offsets of a group in its topic; none if there is no such group."""
        topic = topic_of(group)
        if not (count := await self.partitions(topic)):
            return {}
        return await asyncio.to_thread(self._reader.committed, group, topic, range(count))

    async def known_positions(self, subscription: str) -> dict[int, int]:
        if positions := await self.positions(subscription):
            return positions
        raise SubscriptionMissing(subscription)

    async def ends(self, topic: str, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where each partition begins, and where it ends."""
        return await asyncio.to_thread(self._reader.ends, topic, numbers)

    async def set_positions(self, group: str, positions: Mapping[int, int]) -> None:
        """Of a group without members."""
        await asyncio.to_thread(self._reader.commit, group, topic_of(group), positions)

    async def members(self, group: str) -> set[str]:
        try:
            found = await self._client.ask(
                lambda admin: admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group]
            )
        except Rejection as rejection:
            if rejection.code == KafkaError.GROUP_ID_NOT_FOUND:
                return set()
            raise
        return {member.member_id for member in found.members}

    async def subscriptions(self) -> list[Subscription]:
        """The groups that are named for a topic there is."""
        topics = await self._client.topics()
        names = [name for name in await self._groups() if SNAPSHOT not in name and topic_of(name) in topics]
        return [Subscription(name, topic_of(name)) for name in names]

    async def snapshots(self, subscription: str) -> list[str]:
        prefix = subscription + SNAPSHOT
        return [name.removeprefix(prefix) for name in await self._groups() if name.startswith(prefix)]

    async def _groups(self) -> list[str]:
        found = await self._client.ask(lambda admin: admin.list_consumer_groups(request_timeout=REQUEST_SECONDS))
        return sorted(group.group_id for group in found.valid or ())

    # -- what is missing ---------------------------------------------------------------------------------

    async def plan(self, topology: Topology) -> list[Change]:
        return [change for change, _ in await self._steps(topology)]

    async def concerns(self, topology: Topology) -> list[Concern]:
        """What "written to all replicas in sync" is worth."""
        topics = _wanted(topology)
        copies = {topic: await self._client.copies(topic) for topic in topics}
        lonely = [topic for topic, count in copies.items() if count == 1]
        several = [topic for topic, count in copies.items() if count > 1]
        hasty = [topic for topic in several if int((await self._settings(topic)).get(_IN_SYNC) or 1) < _ENOUGH]
        found = []
        if lonely:
            found.append(
                Concern(
                    "confirms",
                    f"{', '.join(lonely)}: each partition is on one server alone (replication factor 1), and what was "
                    "confirmed is lost with its disk.",
                    "Give the cluster three servers and the topic three replicas, unless this is a cluster for tests.",
                    "kafka-reassign-partitions.sh --bootstrap-server … --reassignment-json-file … --execute",
                )
            )
        if hasty:
            found.append(
                Concern(
                    "confirms",
                    f"{', '.join(hasty)}: {_IN_SYNC} is 1, so that an event counts as written when the leader alone "
                    "has it, and is lost with that server.",
                    f"Set {_IN_SYNC} to {_ENOUGH} on each of them; of three replicas one may then be away.",
                    f"kafka-configs.sh --bootstrap-server … --alter --entity-type topics --entity-name {hasty[0]} "
                    f"--add-config {_IN_SYNC}={_ENOUGH}",
                )
            )
        return found

    async def apply(self, topology: Topology) -> list[Change]:
        steps = await self._steps(topology)
        for change, settings in steps:
            if change.kind == "subscription":
                await self._begin(change.name)
            elif change.action == "create":
                await self._create(change.name, settings)
            else:
                await self._alter(change.name, settings)
        return [change for change, _ in steps]

    async def _steps(self, topology: Topology) -> list[tuple[Change, dict[str, str]]]:
        steps = []
        for topic, settings in _wanted(topology).items():
            if step := await self._topic(topic, settings):
                steps.append(step)
        for subscription in topology.subscriptions:
            if subscription.max_attempts:
                raise UnsupportedByBroker("Kafka", "count of deliveries", "Leave max_attempts at 0: the inbox counts.")
            if not await self.positions(subscription.name):
                told = "from the first message that is left"
                steps.append((Change("create", "subscription", subscription.name, told), {}))
        return steps

    async def _topic(self, topic: str, wanted: dict[str, str]) -> tuple[Change, dict[str, str]] | None:
        partitions = await self.partitions(topic)
        if not partitions:
            told = "compacted" if wanted[_CLEANUP] == "compact" else f"kept for {_days(wanted[_RETENTION])}"
            return Change("create", "topic", topic, told), wanted
        found = await self._settings(topic)
        if wanted[_CLEANUP] == "compact":
            differs = {} if found.get(_CLEANUP) == "compact" else wanted
            return (Change("update", "topic", topic, "compacted"), differs) if differs else None
        if objection := self.objection(topic, partitions):
            raise ConfigurationError(objection)
        if "compact" in found.get(_CLEANUP, ""):
            raise ConfigurationError(
                f"Topic {topic!r} is compacted: Kafka would remove all but the last event of each key. "
                "Set its cleanup.policy to delete, or use another topic."
            )
        if 0 <= int(found.get(_RETENTION, -1)) < int(wanted[_RETENTION]):
            told = f"kept for {_days(wanted[_RETENTION])}, was {_days(found[_RETENTION])}"
            return Change("update", "topic", topic, told), {_RETENTION: wanted[_RETENTION]}
        return None

    async def _settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = await self._client.ask_all(
            lambda admin: admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)
        )
        return {name: entry.value or "" for entries in found.values() for name, entry in entries.items()}

    async def _create(self, topic: str, settings: dict[str, str]) -> None:
        count = 1 if settings[_CLEANUP] == "compact" else self._address.partitions or -1
        new = NewTopic(topic, num_partitions=count, replication_factor=self._address.replication, config=settings)
        try:
            await self._client.ask_all(lambda admin: admin.create_topics([new], request_timeout=REQUEST_SECONDS))
        except Rejection as rejection:
            if rejection.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise  # else somebody else was quicker

        async def is_served() -> bool:
            """Its partitions must have somebody who answers for them."""
            try:
                return bool(await self.ends(topic, range(await self.partitions(topic))))
            except BrokerError:
                return False

        await self._until(is_served, topic)

    async def _alter(self, topic: str, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        await self._client.ask_all(
            lambda admin: admin.incremental_alter_configs([resource], request_timeout=REQUEST_SECONDS)
        )

        async def is_so() -> bool:
            return settings.items() <= (await self._settings(topic)).items()

        await self._until(is_so, topic)

    async def _until(self, seen: Callable[[], Awaitable[bool]], topic: str) -> None:
        """The controller has said yes; the server that is asked next hears of it a moment later."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not await seen():
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"Kafka has not made topic {topic!r} as it said it would. Try again.")
            await asyncio.sleep(_PAUSE)

    async def _begin(self, subscription: str) -> None:
        """A group is there when it has a place."""
        topic = topic_of(subscription)
        ends = await self.ends(topic, range(await self.partitions(topic)))
        try:
            await self.set_positions(subscription, {number: first for number, (first, _) in ends.items()})
        except Rejection:
            if not await self.positions(subscription):
                raise  # else somebody else was quicker, and has workers in it already


def topic_of(group: str) -> str:
    return group.partition(SNAPSHOT)[0].rpartition(".")[0]


def _wanted(topology: Topology) -> dict[str, dict[str, str]]:
    """The settings of each topic, dead letters included. What is kept is kept for the one who wants it longest."""
    retention: dict[str, float] = dict.fromkeys(topology.topics, 7 * _DAY)
    for subscription in topology.subscriptions:
        retention[subscription.topic] = max(retention.get(subscription.topic, 0.0), subscription.retention)
    wanted = {topic: _of_events(seconds) for topic, seconds in retention.items()}
    # Compacted, by the letters' own ids: a letter stays until somebody has dealt with it.
    dead = {subscription.dead_letter_topic: {_CLEANUP: "compact"} for subscription in topology.subscriptions}
    return wanted | dead


def _of_events(seconds: float) -> dict[str, str]:
    return {
        _CLEANUP: "delete",
        _RETENTION: str(int(seconds * 1_000)),
        # By one clock, and never backwards: else "since noon" would mean something else for each sender.
        "message.timestamp.type": "LogAppendTime",
    }


def _days(milliseconds: str) -> str:
    return f"{int(milliseconds) / 1_000 / _DAY:g} days"
