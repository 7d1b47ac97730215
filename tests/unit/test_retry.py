"""Back-off figures and the verdict on a failed attempt."""

import pytest

from postroad.errors import (
    BusinessError,
    ConfigurationError,
    PoisonError,
    TransientError,
    UnknownEventType,
    UnknownVersion,
    UnreadableMessage,
)
from postroad.retry import (
    COMMAND,
    CONSUMER,
    EXPONENTIAL,
    LINEAR_MINUTES,
    PRESETS,
    PUBLISH,
    TABLE,
    Ack,
    Backoff,
    Dead,
    Retry,
    decide,
    describe,
)


def waits(backoff: Backoff) -> list[float | None]:
    return [backoff.after(failed) for failed in range(1, backoff.attempts + 2)]


@pytest.mark.spec("P12")
def test_pubsub_conventions_ten_seconds_times_two_to_the_attempts() -> None:
    assert waits(EXPONENTIAL) == [20, 40, 80, 160, None, None]
    patient = Backoff(attempts=12, base=20, ceiling=600)
    assert [patient.after(failed) for failed in range(1, 9)] == [min(10 * 2**failed, 600) for failed in range(1, 9)]


@pytest.mark.spec("F5")
def test_framework_one_more_minute_after_each_failure() -> None:
    assert [LINEAR_MINUTES.after(failed) for failed in (1, 2, 3, 9)] == [60, 120, 180, 540]
    assert LINEAR_MINUTES.after(LINEAR_MINUTES.attempts) is None


@pytest.mark.spec("R7")
def test_marketplace_five_seconds_thirty_seconds_two_minutes_then_failed() -> None:
    assert waits(TABLE) == [5, 30, 120, None, None]


@pytest.mark.spec("T4")
def test_consumption_template_doubles_from_one_second_up_to_five_minutes() -> None:
    assert waits(CONSUMER) == [1, 2, 4, 8, None, None]
    patient = Backoff(attempts=20, base=CONSUMER.base, factor=CONSUMER.factor, ceiling=CONSUMER.ceiling)
    assert [patient.after(n) for n in range(1, 20)] == [min(2 ** (n - 1), 300) for n in range(1, 20)]


@pytest.mark.spec("G6")
def test_commands_are_tried_again_after_one_five_and_fifteen_seconds() -> None:
    assert waits(COMMAND) == [1, 5, 15, None, None]


@pytest.mark.spec("G7")
def test_publishing_to_kafka_is_retried_five_times() -> None:
    assert waits(PUBLISH) == [1, 2, 4, 8, 16, None, None]


def test_every_preset_has_a_name_and_no_wait_is_negative_or_endless() -> None:
    assert len(PRESETS) == 6
    for backoff in PRESETS.values():
        assert all(0 <= wait <= 600 for wait in waits(backoff) if wait is not None)


def test_the_last_entry_of_a_table_repeats() -> None:
    assert waits(Backoff(attempts=5, table=(1, 7))) == [1, 7, 7, 7, None, None]


def test_linear_waits_stop_at_the_ceiling() -> None:
    assert waits(Backoff(attempts=5, base=60, linear=True, ceiling=150)) == [60, 120, 150, 150, None, None]


def test_a_very_long_series_does_not_overflow() -> None:
    assert Backoff(attempts=10_000, base=1, ceiling=300).after(9_000) == 300


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"attempts": 3, "base": -1.0},
        {"attempts": 3, "base": float("nan")},
        {"attempts": 3, "base": float("inf")},
        {"attempts": 3, "factor": 0.5},
        {"attempts": 3, "factor": float("nan")},
        {"attempts": 3, "ceiling": -1.0},
        {"attempts": 3, "ceiling": float("nan")},
        {"attempts": 3, "table": (1.0, -2.0)},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="Backoff"):
        Backoff(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [TransientError("later"), RuntimeError("boom"), TimeoutError()])
def test_any_other_failure_is_tried_again_until_the_attempts_are_used_up(error: Exception) -> None:
    assert decide(error, 1, TABLE) == Retry(5)
    assert decide(error, 3, TABLE) == Retry(120)
    dead = decide(error, 4, TABLE)
    assert isinstance(dead, Dead)
    assert dead.reason.startswith("exceeded maxRetry (4 attempts): ")
    assert type(error).__name__ in dead.reason


def test_a_business_error_is_settled_at_once() -> None:
    assert decide(BusinessError("order is closed"), 1, TABLE) == Ack("BusinessError: order is closed")


@pytest.mark.parametrize("kind", [PoisonError, UnreadableMessage, UnknownEventType, UnknownVersion])
def test_poison_goes_to_the_dead_letters_at_once(kind: type[PoisonError]) -> None:
    assert decide(kind("no"), 1, TABLE) == Dead(f"{kind.__name__}: no")


@pytest.mark.spec("T1")
def test_a_reason_never_exceeds_the_column() -> None:
    for failed in (1, 4):
        for error in (BusinessError("x" * 10_000), PoisonError("y" * 10_000), RuntimeError("z" * 10_000)):
            decision = decide(error, failed, TABLE)
            assert isinstance(decision, Retry) or (len(decision.reason) == 256 and decision.reason.endswith("…"))


def test_an_error_text_becomes_one_clean_line() -> None:
    text = describe(ValueError("a\0b\r\nc\ud800d\x1b[31m é 事件"))
    assert text == "ValueError: a b  c d [31m é 事件"
    assert text.encode()


def test_an_error_without_text_is_its_class() -> None:
    assert describe(TimeoutError()) == "TimeoutError"


def test_an_error_whose_text_fails_is_still_described() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert describe(BrokenError()) == "BrokenError (its text cannot be shown)"
