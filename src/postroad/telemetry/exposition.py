"""Meters in Prometheus' text format, through its own library."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from postroad.errors import MissingExtra
from postroad.telemetry.meter import Labels, Meter
from postroad.telemetry.names import COUNTER, HISTOGRAM, METRICS, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def require_library() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise MissingExtra("prometheus-client, which serves the metrics,", "metrics") from None


def exposition(meters: Sequence[Meter]) -> bytes:
    require_library()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(meters))
    return generate_latest(registry)


class _Collector:
    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters

    def collect(self) -> "Iterator[Family]":
        for metric in METRICS.values():
            yield _distributions(metric, self._meters) if metric.kind == HISTOGRAM else _values(metric, self._meters)


def _values(metric: Metric, meters: Sequence[Meter]) -> "Family":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily)(
        metric.name, metric.told, labels=metric.labels
    )
    found: dict[Labels, float] = {}
    for meter in meters:
        for labels, value in meter.values(metric.name):
            # One series must not be told twice; of two who measure the same, the one who sees more is right.
            found[labels] = max(value, found.get(labels, value))
    for labels, value in found.items():
        family.add_metric(labels, value)
    return family


def _distributions(metric: Metric, meters: Sequence[Meter]) -> "Family":
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(metric.name, metric.told, labels=metric.labels)
    for meter in meters:
        for labels, found in meter.distributions(metric.name):
            bounds = [*map(str, found.bounds), "+Inf"]
            family.add_metric(labels, list(zip(bounds, accumulate(found.counts), strict=True)), found.total)
    return family
