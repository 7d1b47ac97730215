"""Stage 2 of 7: carry. From the outbox to the broker, each key in order, with any number of relays.

The law: a relay sends (key, n) only if every (key, m < n) is marked published or was confirmed to this relay
in this run, and marks follow confirms. Then a crash, a stall or a lost lease costs duplicates only, which the
inbox absorbs.
"""

from postroad.relay.options import RelayOptions
from postroad.relay.pruner import Pruner
from postroad.relay.relay import Relay

__all__ = ["Pruner", "Relay", "RelayOptions"]
