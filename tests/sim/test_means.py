"""Several runs of a policy as one."""

from gpushare.sim.results import Point, Run
from gpushare.sim.showing.means import Mean


def run(*points: tuple[int, float]) -> Run:
    return Run("vrc", 1, {}, tuple([Point(load, allocated, 0.0, 0.0) for load, allocated in points]))


def test_a_run_without_a_pod_at_a_load_counts_with_what_it_had_before() -> None:
    mean = Mean([run((50, 50.0), (90, 80.0), (100, 84.0)), run((50, 50.0), (100, 60.0))])
    assert [(point.load, point.allocated) for point in mean.points] == [(50, 50.0), (90, 65.0), (100, 72.0)]


def test_a_run_that_begins_later_or_ends_earlier_is_left_out_before_and_stays_afterwards() -> None:
    mean = Mean([run((10, 10.0), (40, 30.0)), run((20, 20.0))])
    assert [(point.load, point.allocated) for point in mean.points] == [(10, 10.0), (20, 15.0), (40, 25.0)]
