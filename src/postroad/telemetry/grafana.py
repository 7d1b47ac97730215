"""A Grafana dashboard with a panel for every metric in the table."""

import json
from typing import Any, Final

from postroad.telemetry.names import COUNTER, HISTOGRAM, METRICS, Metric

_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_SECONDS: Final = ("_seconds", "_age", "_latency", "_interval")
_MILLISECONDS: Final = ("avg_processing_time", "avg_publish_delay")


def dashboard() -> str:
    panels = [_panel(place, metric) for place, metric in enumerate(METRICS.values())]
    return json.dumps(
        {
            "title": "Postroad",
            "uid": "postroad",
            "tags": ["postroad"],
            "timezone": "utc",
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "schemaVersion": 39,
            "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource",
                                     "query": "prometheus"}]},
            "panels": panels,
        },
        ensure_ascii=False,
        indent=2,
    )  # fmt: skip


def queries(metric: Metric) -> dict[str, str]:
    """What a panel draws, by the legend of each line."""
    # Services call their outboxes and groups alike: what one tells must not stand for another.
    labels = ("job", *metric.labels)
    by = ", ".join(labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    if metric.kind == COUNTER:
        return {legend: f"sum by ({by}) (rate({metric.name}[5m]))"}
    if metric.kind == HISTOGRAM:
        spread = f"sum by (le, {by}) (rate({metric.name}_bucket[5m]))"
        return {f"p{part} {legend}": f"histogram_quantile(0.{part}, {spread})" for part in ("50", "95")}
    # Several processes may tell the same; they do not add up.
    return {legend: f"max by ({by}) ({metric.name})"}


def _panel(place: int, metric: Metric) -> dict[str, Any]:
    row, column = divmod(place, _PER_ROW)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": metric.name + (" per second" if metric.kind == COUNTER else ""),
        "description": metric.told,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {"defaults": {"unit": _unit(metric), "min": 0}, "overrides": []},
        "targets": [
            {"refId": "AB"[number], "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for number, (legend, expr) in enumerate(queries(metric).items())
        ],
    }


def _unit(metric: Metric) -> str:
    if metric.name in _MILLISECONDS:
        return "ms"
    return "s" if metric.name.endswith(_SECONDS) else "short"
