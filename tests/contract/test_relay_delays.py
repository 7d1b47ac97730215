"""Not every broker can keep a message for later. What is delayed then stays in the outbox, and nothing waits for it."""

from dataclasses import replace

from postroad import operations
from postroad.testing.office import LONG_AGO, Office, RecordingBroker


class Prompt(RecordingBroker):
    """Hands on at once whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.features = replace(self.features, delay=False)


async def come_due(office: Office) -> None:
    await office.run("UPDATE {outbox} SET {deliver_at} = :then WHERE {deliver_at} IS NOT NULL", then=LONG_AGO)


async def test_a_delayed_event_stays_in_the_outbox_until_it_is_due(office: Office) -> None:
    office.broker = Prompt()
    (later,) = await office.post("a", delay=3600)
    await office.post("a", "a")
    await office.carry()
    assert [message.id for message in office.broker.sent if message.deliver_at] == []
    assert sorted(await office.states()) == ["NEW", "SENT", "SENT"]
    await come_due(office)
    await office.carry()
    assert office.broker.sent[-1].id == later.id
    assert await office.states() == ["SENT"] * 3


async def test_a_broker_that_can_keep_it_has_it_at_once(office: Office) -> None:
    await office.post("a", delay=3600)
    await office.carry()
    assert len(office.broker.sent) == 1


async def test_many_that_are_not_due_do_not_hide_what_is_behind_them(office: Office) -> None:
    office.broker = Prompt()
    await office.post(*"abcdefgh", delay=3600)
    await office.post("z")
    await office.carry(batch=1)
    assert [message.aggregate_id for message in office.broker.sent] == ["z"]


async def test_what_is_not_due_is_scheduled_and_neither_waiting_nor_old(office: Office) -> None:
    (later,) = await office.post("a", delay=3600)
    await office.post("b", delay=7200)
    (outbox,) = (await operations.status(office.store, office.tables[:1])).outboxes
    assert (outbox.waiting, outbox.oldest_unsent, outbox.oldest_unsent_age) == (0, None, None)
    assert (outbox.scheduled, outbox.next_due) == (2, later.message.deliver_at)
    await come_due(office)
    (outbox,) = (await operations.status(office.store, office.tables[:1])).outboxes
    assert (outbox.waiting, outbox.scheduled, outbox.next_due) == (2, 0, None)
    assert outbox.oldest_unsent_age
