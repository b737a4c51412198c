"""Pods come and end: who waits, for how long, and in which order they are tried again."""

import pytest

from gpushare.cli.traces.replaying import KNOWN
from gpushare.sim import lifetimes
from gpushare.sim.results import Run
from gpushare.sim.trace import Gpu, Node, Pod, Trace
from tests.sim import small

ONE = (Node("n", 8000, 8000, (Gpu(1000, "T4"),)),)


def replayed(*pods: Pod, nodes: tuple[Node, ...] = ONE, policy: str = "binpack") -> Run:
    return lifetimes.replay(Trace(nodes, pods), policy, range(len(nodes)))


def pod(name: str, arrival: float, duration: float | None, share: int = 0, cpu: int = 0) -> Pod:
    return Pod(name, cpu, 0, 1, share, (), arrival, duration)


def test_a_pod_without_a_place_starts_when_another_ends() -> None:
    run = replayed(pod("a", 0, 100), pod("b", 10, 100), pod("last", 300, 1))
    assert run.over_time is not None
    assert (run.over_time.mean_wait, run.over_time.never_ran) == (30, 0)  # 0, 90 and 0 seconds
    assert run.over_time.allocated == pytest.approx(100 * 200 / 300)


def test_pods_that_wait_at_the_end_count_with_the_time_so_far() -> None:
    run = replayed(pod("a", 0, None), pod("b", 10, 100), pod("last", 110, 1))
    assert run.over_time is not None
    assert run.over_time.never_ran == 2
    assert run.rejected == {"1 GPU": 2}
    assert run.over_time.mean_wait == pytest.approx(100 / 3)
    assert run.over_time.p95_wait == 100


def test_the_oldest_goes_first_and_smaller_pods_may_pass_a_large_one() -> None:
    run = replayed(
        pod("holds", 0, 100, 600), pod("large", 1, 50), pod("small", 2, 10, 300), pod("late", 3, 50, 500),
        pod("last", 1000, 1),
    )  # fmt: skip
    # "small" starts at once beside "holds"; at 100 "large" takes the GPU, "late" follows at 150
    assert run.over_time is not None
    assert run.over_time.mean_wait == pytest.approx((0 + 99 + 0 + 147 + 0) / 5)


def test_pods_wait_for_cpu_as_well() -> None:
    run = replayed(pod("a", 0, 100, 100, cpu=8000), pod("b", 10, 10, 100, cpu=1000), pod("last", 200, 1))
    assert run.over_time is not None
    assert run.over_time.mean_wait == 30


def test_a_pod_that_lasts_no_time_frees_its_place_at_once() -> None:
    run = replayed(pod("a", 0, 0), pod("b", 1, 0), pod("last", 2, 0))
    assert run.over_time is not None
    assert (run.over_time.mean_wait, run.over_time.never_ran, run.over_time.allocated) == (0, 0, 0)


@pytest.mark.parametrize("policy", KNOWN)
def test_every_policy_gives_the_same_result_twice_and_loses_no_pod(policy: str) -> None:
    trace = small.trace(pods=300, nodes=6)
    one, two = [lifetimes.replay(trace, policy, range(6)) for _ in range(2)]
    assert one == two
    assert one.over_time is not None
    assert one.pods == 300
    assert 0 < one.over_time.allocated <= 100
    assert one.over_time.never_ran == sum(one.rejected.values())
    assert all(0 <= point.allocated <= 100 for point in one.points)
    assert [point.load for point in one.points] == list(range(100))
