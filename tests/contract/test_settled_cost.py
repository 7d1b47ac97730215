"""What is settled costs nothing: what is asked again and again, of few rows, is as cheap with thousands of others."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from postroad.stores import open_store
from postroad.testing.office import Office, opened
from tests.support.costs import cost
from tests.support.crowd import crowd, few, gather_statistics
from tests.support.outbox import fresh_database
from tests.support.rows import FUTURE, LONG_PAST, PAST, number, told

NOBODY = [str(number(n)) for n in range(90_000, 90_005)]
ASKED: dict[str, dict[str, Any]] = {
    "command_due": {"types": ["Command.Office.Parcel.Post"], "limit": 5},
    "command_counts": {"most": 5},
    "command_unfinished": {},
    "command_list_of": {"type": "", "status": "FAILED", "before": 10**18, "limit": 5},
    "inbox_due": {"group": "receipts", "limit": 5},
    "inbox_kept": {"group": "receipts", "written_by": FUTURE},
    "inbox_stopped": {"limit": 5},
    "inbox_failures": {"refused": 0, "limit": 5},
    "inbox_failed_count": {"group": "receipts", "most": 5},
    "inbox_overdue": {"seconds": 5.0, "most": 5},
    "inbox_unsettled_types": {"most": 5},
    "check_expired_inbox": {"until": PAST, "limit": 5},
    "check_late_inbox": {"until": PAST, "limit": 5},
    "check_late_outbox": {"until": FUTURE, "limit": 5},
    "unsent_exists": {"written_by": FUTURE, "due_by": FUTURE},
    "unsent_types": {"most": 5},
    "outbox_parked": {"limit": 5},
    "outbox_held_count": {"most": 5},
    "outbox_unsent_count": {"now": LONG_PAST, "most": 5},
    "outbox_due_count": {"now": LONG_PAST, "most": 5},
    "outbox_oldest": {"now": LONG_PAST, "most": 5},
    "canary_topics": {"aggregate_type": "postroad.canary"},
    "canaries": {"aggregate_type": "postroad.canary", "aggregate_id": "office.parcel.events"},
    "prune_sent": {"ids": NOBODY},
    "prune_facts": {"ids": NOBODY},
    "journal_forget": {"positions": list(range(-5, 0))},
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def urls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Of this file's own: a planner remembers what once lay in a table that is empty now."""
    with ExitStack() as made:
        yield [made.enter_context(fresh_database(request.param, tmp_path_factory.mktemp("cost"))) for _ in range(2)]


@pytest.fixture
async def offices(urls: list[str]) -> AsyncIterator[list[Office]]:
    """Two with the same few rows, the second in a crowd of others."""
    async with AsyncExitStack() as doors:
        offices = [await doors.enter_async_context(opened(open_store(url))) for url in urls]
        if not await told(offices[0].store, "outbox_parked", limit=1):
            await crowd(offices[1].store)
            for office in offices:
                await few(office.store)
                await gather_statistics(office.store)
        yield offices


@pytest.mark.spec("F14")
@pytest.mark.parametrize("statement", ASKED)
async def test_what_is_settled_costs_nothing(offices: list[Office], statement: str) -> None:
    quiet, crowded = [await cost(office, statement, **ASKED[statement]) for office in offices]
    assert crowded < 1.5 * quiet + 30
