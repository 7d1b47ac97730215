"""How often a relay tells of a database in trouble."""

import logging

import pytest

from postroad.errors import StoreBusy, StoreError, StoreUnavailable
from postroad.relay.relay import _log_store_trouble


@pytest.mark.parametrize(
    ("error", "told"), [(StoreUnavailable("gone"), [1, 2, 4, 8, 16, 32]), (StoreBusy("busy"), [8, 16, 32])]
)
def test_it_tells_less_and_less_often_and_of_others_being_busy_only_if_it_lasts(
    error: StoreError, told: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for failures in range(1, 40):
        _log_store_trouble(error, failures)
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == told
