"""For your own tests: the `survives` fixture, a clock that stands still, a broker and a store that fail, and the
suites every adapter must pass.

`postroad.testing.plugin` and the contract suites need pytest; the rest needs nothing beyond Postroad.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Imported when first asked for: pytest loads the plugin from this package in every run.
if TYPE_CHECKING:
    from postroad.testing.clock import VirtualClock
    from postroad.testing.faulty_broker import Faults, FaultyBroker
    from postroad.testing.faulty_store import FaultyStore
    from postroad.testing.survival import Survival, Survived, rows

__all__ = ["Faults", "FaultyBroker", "FaultyStore", "Survival", "Survived", "VirtualClock", "rows"]

_HOME_OF = {
    "Faults": "faulty_broker",
    "FaultyBroker": "faulty_broker",
    "FaultyStore": "faulty_store",
    "Survival": "survival",
    "Survived": "survival",
    "VirtualClock": "clock",
    "rows": "survival",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'postroad.testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"postroad.testing.{_HOME_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
