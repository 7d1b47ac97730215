"""Counting: what is added up, what is bounded, and how Prometheus reads it."""

import builtins
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroad.errors import MissingExtra
from postroad.telemetry import Meter
from postroad.telemetry.exposition import exposition
from postroad.telemetry.meter import MOST_SERIES, OVERFLOW, RecentAverage


def samples(*meters: Meter) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(exposition(meters).decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_counts_add_up_gauges_are_replaced() -> None:
    meter = Meter()
    for _ in range(2):
        meter.add("outbox_publish_success_total", 3, "shop.order.events")
        meter.set("pending_commands", 7)
    found = samples(meter)
    assert found["outbox_publish_success_total", (("topic", "shop.order.events"),)] == 6
    assert found["pending_commands", ()] == 7


def test_a_histogram_counts_each_value_once_and_up_to_its_bound() -> None:
    meter = Meter()
    meter.observe("outbox_publish_latency", [0.005, 0.0051, 1.0, 1_000.0], "t")
    found = samples(meter)
    bucket = {labels[0][1]: value for (name, labels), value in found.items() if name == "outbox_publish_latency_bucket"}
    assert (bucket["0.005"], bucket["0.01"], bucket["1"], bucket["300"], bucket["+Inf"]) == (1, 2, 3, 3, 4)
    assert found["outbox_publish_latency_count", (("topic", "t"),)] == 4
    assert found["outbox_publish_latency_sum", (("topic", "t"),)] == pytest.approx(1001.0101)


@pytest.mark.spec("P16")
def test_a_label_made_up_for_each_message_does_not_fill_the_memory() -> None:
    meter = Meter()
    for number in range(10 * MOST_SERIES):
        meter.add("projection_process_success_total", 1, "receipts", f"order.{number}")
        meter.observe("outbox_publish_latency", [0.1], f"topic.{number}")
    counted = dict(meter.values("projection_process_success_total"))
    assert len(counted) == MOST_SERIES + 1
    assert counted[OVERFLOW, OVERFLOW] == 9 * MOST_SERIES
    assert sum(counted.values()) == 10 * MOST_SERIES
    assert len(dict(meter.distributions("outbox_publish_latency"))) == MOST_SERIES + 1
    meter.add("projection_process_success_total", 1, "receipts", "order.1")
    assert meter.value("projection_process_success_total", "receipts", "order.1") == 2


def test_of_the_gauges_that_share_a_place_the_highest_is_told() -> None:
    meter = Meter()
    for number in range(MOST_SERIES):
        meter.set("relay_breaker_open", 1, f"topic.{number}")
    for topic, opened in (("closed", 0), ("open", 1), ("closed too", 0)):
        meter.set("relay_breaker_open", opened, topic)
    assert meter.value("relay_breaker_open", OVERFLOW) == 1
    meter.set("relay_breaker_open", 0, "topic.1")
    assert meter.value("relay_breaker_open", "topic.1") == 0


def test_a_name_that_is_not_in_the_table_or_has_other_labels_is_refused() -> None:
    with pytest.raises(KeyError):
        Meter().add("made_up_total", 1)
    with pytest.raises(ValueError, match="has the labels"):
        Meter().add("outbox_publish_success_total", 1, "shop", "order.events")


def test_a_series_that_two_measure_is_told_once_by_who_sees_more() -> None:
    near, far = Meter(), Meter()
    near.set("projection_version_lag", 12, "receipts")
    far.set("projection_version_lag", 1, "receipts")
    page = exposition([near, far]).decode()
    assert page.count('projection_version_lag{group="receipts"}') == 1
    assert samples(near, far)["projection_version_lag", (("group", "receipts"),)] == 12


def test_nobodys_data_can_forge_a_line() -> None:
    meter = Meter()
    meter.set("events_by_type", 1, 'x"}\nup 0\n')
    assert ("up", ()) not in samples(meter)


def test_without_prometheus_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'postroad\[metrics\]'"):
        exposition([Meter()])


@pytest.mark.spec("G10")
def test_an_average_is_of_the_last_minutes_only() -> None:
    meter, average = Meter(), RecentAverage("outbox_publish_latency", seconds=300)
    assert average.read(meter, 0) == 0
    meter.observe("outbox_publish_latency", [8.0, 4.0], "a")
    assert average.read(meter, 10) == 6
    meter.observe("outbox_publish_latency", [0.0], "b")
    assert average.read(meter, 200) == 4
    assert average.read(meter, 310) == 0
    assert average.read(meter, 600) == 0
    meter.observe("outbox_publish_latency", [7.0], "a")
    assert average.read(meter, 610) == 7
