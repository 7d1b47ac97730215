"""Wake-ups are many; what is sent to the database because of them is not."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from postroad.outbox import Outbox
from postroad.outbox import wake as module
from postroad.outbox.wake import Wake
from postroad.stores import open_store
from postroad.stores.base import Notifier
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable


class Bell(Notifier):
    """Counts what would have been sent; `rung` is set by each."""

    def __init__(self) -> None:
        self.times = 0
        self.takes = 0.0
        self.rung = threading.Event()

    def notify(self) -> None:
        self.times += 1
        self.rung.set()
        time.sleep(self.takes)


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def wake(bell: Bell) -> Iterator[Wake]:
    store: Any = SimpleNamespace(can_notify=True, notifier=lambda channel, sender: bell)
    wake = Wake(store, DEFAULT_OUTBOX)
    yield wake
    wake.close()


def test_a_commit_is_told_here_at_once_and_elsewhere_by_notification(wake: Wake, bell: Bell) -> None:
    told: list[str] = []
    wake.listen(lambda: told.append("here"))
    wake.committed()
    assert told == ["here"]
    assert bell.rung.wait(5)
    assert told == ["here"]


def test_a_process_ends_without_waiting_for_its_notifications(wake: Wake) -> None:
    wake.committed()
    assert wake._thread is not None
    assert wake._thread.daemon


def test_many_commits_share_few_notifications(wake: Wake, bell: Bell) -> None:
    begun = time.monotonic()
    for _ in range(2_000):
        wake.committed()
        wake.soon()
        time.sleep(0)
    wake.close()
    most = (time.monotonic() - begun) / module._REST + 2
    assert 1 <= bell.times <= most


def test_where_notifying_takes_long_it_is_done_more_seldom(
    wake: Wake, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAVED_UP", 0.0)
    bell.takes = module._LONGEST_REST / module._REST_PER_NOTIFYING
    begun = time.monotonic()
    while bell.times < 3:
        wake.committed()
        bell.rung.wait(0.001)
    assert time.monotonic() - begun >= 2 * module._LONGEST_REST


def test_one_slow_notification_does_not_hold_back_the_next_of_a_quiet_writer(
    wake: Wake, bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_LONGEST_REST", 60.0), ("_REST_PER_NOTIFYING", 2_000), ("_SAVED_UP", 3_600.0)):
        monkeypatch.setattr(module, name, value)
    bell.takes = 0.01
    for times in (1, 2):
        wake.committed()
        assert bell.rung.wait(5)
        assert bell.times == times
        bell.rung.clear()


def test_an_unseen_commit_is_knocked_for_several_times(wake: Wake, bell: Bell) -> None:
    knocks = threading.Semaphore(0)
    wake.listen(knocks.release)
    wake.soon()
    for _ in range(1 + len(module._LATER_KNOCKS)):
        assert knocks.acquire(timeout=5)


def test_writers_in_many_threads_share_one_thread_that_notifies(wake: Wake) -> None:
    before = set(threading.enumerate())
    writers = [threading.Thread(target=wake.committed) for _ in range(16)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [thread.name for thread in set(threading.enumerate()) - before] == [f"postroad-wake-{DEFAULT_OUTBOX.name}"]
    wake.close()
    assert set(threading.enumerate()) <= before


def test_an_outbox_that_is_closed_wakes_nobody_any_more() -> None:
    outbox = Outbox(open_store("sqlite://"), "office", [DEFAULT_OUTBOX, OutboxTable("second")])
    for wake in outbox.wakes.values():
        wake.soon()
    outbox.close()
    assert [wake._thread for wake in outbox.wakes.values()] == [None, None]


def test_nothing_starts_after_the_end(wake: Wake, bell: Bell) -> None:
    wake.close()
    wake.committed()
    wake.soon()
    assert bell.times == 0
    assert wake._thread is None
