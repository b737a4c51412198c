"""The points of policy `metric`: each figure counts, and what is unknown is neither good nor bad."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring import adjusted, metric
from gpushare.core.facts.scoring.adjusted import Scoring
from gpushare.core.facts.scoring.load import GpuLoad
from gpushare.core.facts.scoring.settings import Settings

IDLE = GpuLoad(
    40_000, used=0, utilization=0.0, temperature=30, temperature_limit=90, power=0, power_limit=300, over_used=False
)
FULL = GpuLoad(
    40_000, granted=40_000, pods=10, used=40_000, utilization=100.0, temperature=90, temperature_limit=90, power=300,
    power_limit=300, over_used=True,
)  # fmt: skip
WORSE: list[dict[str, Any]] = [
    {"used": 20_000},
    {"granted": 20_000},
    {"utilization": 80.0},
    {"temperature": 80},
    {"power": 250},
    {"pods": 5},
    {"over_used": True},
]
UNKNOWN: list[dict[str, Any]] = [
    {"used": None},
    {"utilization": None},
    {"temperature": None},
    {"temperature_limit": None},
    {"power": None},
    {"power_limit": None},
    {"over_used": None},
]
figures = st.one_of(st.none(), st.integers(0, 200))
loads = st.builds(
    GpuLoad, total=st.integers(0, 200), granted=st.integers(0, 400), pods=st.integers(0, 60),
    most_pods=st.integers(0, 48), used=figures, utilization=st.one_of(st.none(), st.floats(0, 100)),
    temperature=figures, temperature_limit=figures, power=figures, power_limit=figures,
    over_used=st.one_of(st.none(), st.booleans()), linked=st.booleans(),
)  # fmt: skip


def points(load: GpuLoad) -> int:
    return metric.points(load, 0)


def test_an_idle_gpu_is_worth_100_and_a_full_one_nothing() -> None:
    assert (points(IDLE), points(FULL)) == (100, 0)


@pytest.mark.parametrize("change", WORSE)
def test_more_of_anything_is_worth_less(change: dict[str, Any]) -> None:
    assert points(msgspec.structs.replace(IDLE, **change)) < 100


@pytest.mark.parametrize("change", UNKNOWN)
def test_what_is_unknown_is_between_good_and_bad(change: dict[str, Any]) -> None:
    assert points(msgspec.structs.replace(IDLE, **change)) < points(IDLE)
    assert points(msgspec.structs.replace(FULL, **change)) >= points(FULL)


def test_heat_is_judged_by_the_gpus_own_limit() -> None:
    small, large = (
        msgspec.structs.replace(IDLE, temperature=70, temperature_limit=limit) for limit in (75, 95)
    )  # fmt: skip
    assert points(small) < points(large)


def test_a_gpu_that_is_given_out_is_not_free_although_nobody_uses_it_yet() -> None:
    given_out = msgspec.structs.replace(IDLE, granted=40_000)
    assert dict(metric.terms(given_out, 0))["memory"] == 0


@given(loads)
def test_points_are_the_sum_of_their_terms_and_between_0_and_100(load: GpuLoad) -> None:
    assert points(load) == sum(amount for _, amount in metric.terms(load, 0))
    assert 0 <= points(load) <= 100


@given(loads, st.sampled_from(["spread", "binpack"]), st.booleans(), st.booleans(), st.sampled_from(["keti", "metric"]))
def test_what_settings_add_is_a_term_of_its_own(
    load: GpuLoad, prefer: Any, avoids: bool, single: bool, policy: str
) -> None:
    score, scoring = POLICIES[policy].score, Scoring(Settings(prefer=prefer, avoids_nvlink=avoids), 150)
    assert score is not None
    terms = adjusted.terms(score, load, scoring, single=single)
    assert sum(amount for _, amount in terms) == adjusted.points(score, load, scoring, single=single)
