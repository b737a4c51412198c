"""A large pod does not starve in a crowd of small ones, and the crowd hardly notices. All seeds: `make bench`."""

from statistics import median

import pytest

from bench.crowd import Crowd

PATIENCE = 1 / 6  # of a mean run time: 10 minutes of an hour
SEEDS = range(5)


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_a_large_pod_waits_as_long_as_those_on_one_gpu_run(load: float) -> None:
    """About seven pods have to end. That all are gone after 5 mean run times is likely, after 8 nearly certain."""
    outcomes = [Crowd(load, seed, PATIENCE).run(0) for seed in SEEDS]
    waited = [outcome.waited - PATIENCE for outcome in outcomes if outcome.waited is not None]
    assert median(waited) <= 4
    assert max(waited) <= 8
    assert {outcome.most_kept for outcome in outcomes} == {1}


def test_without_patience_it_starves() -> None:
    waited = [Crowd(0.9, seed, 0).run(60).waited for seed in SEEDS]
    assert sum(one is None or one > 16 for one in waited) >= 4


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_the_memory_given_out_falls_by_less_than_3_points(load: float) -> None:
    before, after = (
        sum(Crowd(load, seed, patience).run(60).allocated for seed in SEEDS) / len(SEEDS) for patience in (0, PATIENCE)
    )
    assert after > before - 0.03
