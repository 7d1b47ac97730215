"""What a running service tells about itself: metrics, health, traces, alert rules. The names are all in `names`.

`meter` and `tracing` are used on the way and cost nothing while nobody asks; the rest reads and serves.
"""

from postroad.telemetry.meter import Meter, Source

__all__ = ["Meter", "Source"]
