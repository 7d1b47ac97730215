"""Stage 4 of 7: receive. One lane per key, in order; lanes side by side; a verdict for every delivery."""

from postroad.subscriber.options import Statistics, SubscriberOptions
from postroad.subscriber.subscriber import Subscriber

__all__ = ["Statistics", "Subscriber", "SubscriberOptions"]
