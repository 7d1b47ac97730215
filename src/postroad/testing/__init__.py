"""For your own tests: a clock that stands still, a broker that fails, and the suites every adapter must pass.

`postroad.testing.broker_contract` needs pytest and pytest-asyncio; the rest needs nothing beyond Postroad.
"""

from postroad.testing.clock import VirtualClock
from postroad.testing.faulty_broker import Faults, FaultyBroker

__all__ = ["Faults", "FaultyBroker", "VirtualClock"]
