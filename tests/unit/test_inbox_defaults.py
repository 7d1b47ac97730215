"""What an inbox does when it is told nothing, and that it does what it is told."""

from typing import Any, cast

import msgspec
import pytest

from postroad.errors import UnreadableMessage
from postroad.handlers.bus import Bus
from postroad.inbox import ConsumeOptions, Inbox
from postroad.inbox.record import check_storable, pack, row_of, unpack
from postroad.inbox.scheduler import RetryScheduler
from postroad.stores import open_store
from tests.support.consuming import placed


def test_two_inboxes_of_one_process_are_two_holders() -> None:
    store = open_store("sqlite://")
    names = {Inbox(store).worker_name for _ in range(3)}
    assert len(names) == 3
    assert all(names)
    assert Inbox(store, worker_name="packer-7").worker_name == "packer-7"


def test_a_holders_name_fits_its_column() -> None:
    assert Inbox(open_store("sqlite://"), worker_name="x" * 300).worker_name == "x" * 255


def test_retries_come_on_top_of_the_first_attempt() -> None:
    assert ConsumeOptions(max_retry=2).backoff.attempts == 3
    assert ConsumeOptions(max_retry=0).backoff.after(1) is None


def test_what_the_scheduler_runs_keeps_its_message_unless_somebody_says_otherwise() -> None:
    """Nobody else would deliver it again."""
    inbox, bus = Inbox(open_store("sqlite://")), cast(Bus, None)
    assert RetryScheduler(inbox, bus)._options.keep_message
    told = ConsumeOptions(max_retry=1)
    assert RetryScheduler(inbox, bus, told)._options is told


@pytest.mark.parametrize(
    "longest",
    [
        {"type": "x" * 128},
        {"tenant": "x" * 255},
        {"topic": "x" * 255},
        {"aggregate_id": "x" * 514},
    ],
)
def test_attributes_may_be_as_long_as_their_columns(longest: dict[str, Any]) -> None:
    check_storable(msgspec.structs.replace(placed(), **longest))
    longer = {name: value + "x" for name, value in longest.items()}
    with pytest.raises(UnreadableMessage, match="longer"):
        check_storable(msgspec.structs.replace(placed(), **longer))


def test_a_message_without_version_comes_before_all_that_have_one() -> None:
    assert row_of(msgspec.structs.replace(placed(), version=None)).version == 0
    assert row_of(msgspec.structs.replace(placed(), version=7)).version == 7


def test_a_stored_message_comes_back_whole_or_is_called_unreadable() -> None:
    message = placed()
    assert unpack(pack(message)) == message
    with pytest.raises(UnreadableMessage, match="cannot be read"):
        unpack(b"\xc1")
