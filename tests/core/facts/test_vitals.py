"""How old the figures of a GPUNode are, and whether they still count."""

import pytest

from gpushare.core.facts import vitals
from gpushare.core.facts.vitals import Status

NOW = 1794745800.0  # 2026-11-15T12:30:00Z


def is_fresh(sampled_at: str, sample_seconds: float = 5.0) -> bool:
    return vitals.is_fresh(Status(sampled_at=sampled_at, sample_seconds=sample_seconds), NOW)


def test_figures_count_for_a_heartbeat_two_passes_and_some_slack() -> None:
    assert is_fresh("2026-11-15T12:28:30Z")
    assert not is_fresh("2026-11-15T12:28:29Z")


def test_a_clock_that_is_a_little_ahead_does_no_harm() -> None:
    assert is_fresh("2026-11-15T12:31:00Z")


@pytest.mark.parametrize("time", ["2026-11-15T12:31:01Z", "9999-12-31T23:59:59Z"])
def test_figures_of_the_future_are_unknown(time: str) -> None:
    assert not is_fresh(time)


@pytest.mark.parametrize("seconds", [1e308, 86_400.0])
def test_figures_are_not_fresh_for_ever_because_they_say_that_passes_are_rare(seconds: float) -> None:
    assert is_fresh("2026-11-15T10:30:00Z", seconds)
    assert not is_fresh("2026-11-15T10:28:00Z", seconds)


def test_a_negative_interval_does_not_make_new_figures_old() -> None:
    assert is_fresh("2026-11-15T12:29:00Z", -1e308)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00"])
def test_no_time_is_too_extreme_to_be_read(time: str) -> None:
    assert not is_fresh(time)
