"""How many rows of a key are expected: more while looks are full, fewer when they are not."""

from postroad.relay.run_length import RunLength


def lengths(run: RunLength, *looks: int) -> list[int]:
    told = []
    for rows in looks:
        run.found(rows)
        told.append(run.now)
    return told


def test_it_grows_in_a_backlog_up_to_a_bound() -> None:
    assert lengths(RunLength(100, 8), *[100] * 5) == [2, 4, 8, 8, 8]


def test_it_shrinks_when_keys_have_no_more() -> None:
    assert lengths(RunLength(100, 8), 100, 100, 100, 74, 10, 0, 0) == [2, 4, 8, 4, 2, 1, 1]


def test_after_a_failure_it_waits_before_it_tries_again() -> None:
    run = RunLength(100, 8)
    assert lengths(run, 100, 50) == [2, 1]
    assert lengths(run, *[100] * 16) == [1] * 16
    assert lengths(run, 100) == [2]


def test_an_idle_relay_does_not_wait() -> None:
    run = RunLength(100, 8)
    assert lengths(run, 1, 0, 0, 100) == [1, 1, 1, 2]


def test_where_runs_are_of_no_use_it_stays_at_one() -> None:
    assert lengths(RunLength(100, 1), *[100] * 20) == [1] * 20
