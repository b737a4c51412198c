"""A large pod does not starve in a crowd of small ones, and the crowd hardly notices. All seeds: `make bench`."""

from functools import cache
from statistics import median

import pytest

from bench.crowd import Crowd, Outcome

PATIENCE = 1 / 6  # of a mean run time: 10 minutes of an hour
SEEDS = range(5)


@cache
def outcome(load: float, seed: int, patience: float, until: float) -> Outcome:
    return Crowd(load, seed, patience).run(until)


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_a_large_pod_waits_as_long_as_those_on_one_gpu_run(load: float) -> None:
    """About seven pods have to end. That all are gone after 5 mean run times is likely, after 8 nearly certain."""
    outcomes = [outcome(load, seed, PATIENCE, 0) for seed in SEEDS]
    waited = [one.waited - PATIENCE for one in outcomes if one.waited is not None]
    assert median(waited) <= 4
    assert max(waited) <= 8
    assert {one.most_kept for one in outcomes} == {1}


def test_without_patience_it_starves() -> None:
    waited = [outcome(0.9, seed, 0, 60).waited for seed in SEEDS]
    assert sum(one is None or one > 16 for one in waited) >= 4


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_the_memory_given_out_falls_by_less_than_3_points(load: float) -> None:
    before, after = (
        sum(outcome(load, seed, patience, 60).allocated for seed in SEEDS) / len(SEEDS) for patience in (0, PATIENCE)
    )
    assert after > before - 0.03
