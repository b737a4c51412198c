"""The runs of a policy with several seeds as one: means. Pure."""

from bisect import bisect_right
from collections.abc import Sequence

from gpushare.sim.results import Point, Run


class Mean:
    """Of the runs of one policy."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.policy, self.runs = runs[0].policy, runs
        self.pods = _mean([run.pods for run in runs])
        self.rejected = _mean([sum(run.rejected.values()) for run in runs])
        self.cpu_seconds = _mean([run.cpu_seconds for run in runs])
        self.points = self._points()

    def rejected_of(self, kind: str) -> float:
        return _mean([run.rejected.get(kind, 0) for run in self.runs])

    def over_time(self) -> tuple[float, float, float, float]:
        """Percent given out, mean and 95th percentile of waiting, pods that never ran."""
        found = [run.over_time for run in self.runs if run.over_time is not None]
        return (
            _mean([one.allocated for one in found]),
            _mean([one.mean_wait for one in found]),
            _mean([one.p95_wait for one in found]),
            _mean([one.never_ran for one in found]),
        )

    def at(self, load: int) -> Point | None:
        """The last point that is not after this load."""
        before = [point for point in self.points if point.load <= load]
        return before[-1] if before else None

    def _points(self) -> list[Point]:
        """At each load that a run has. Where pods are large, other runs have none there: what they had before counts,
        or a mean would be one of the runs that happen to have a small pod there."""
        loads = sorted({point.load for run in self.runs for point in run.points})
        return [
            _mean_point(load, [last for run in self.runs if (last := _last(run, load)) is not None]) for load in loads
        ]


def _last(run: Run, load: int) -> Point | None:
    """The last point that is not after this load."""
    at = bisect_right(run.points, load, key=lambda point: point.load)
    return run.points[at - 1] if at else None


def _mean_point(load: int, points: Sequence[Point]) -> Point:
    return Point(
        load,
        _mean([point.allocated for point in points]),
        _mean([point.fragmented for point in points]),
        _mean([point.fragmented_of_free for point in points]),
    )


def by_policy(runs: Sequence[Run]) -> list[Mean]:
    """In the order in which they were asked for."""
    policies = dict.fromkeys([run.policy for run in runs])
    return [Mean([run for run in runs if run.policy == policy]) for policy in policies]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
