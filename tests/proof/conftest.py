"""What proofs in this process share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """What the code has to say about simulated faults is not news; afterwards every logger speaks again."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
