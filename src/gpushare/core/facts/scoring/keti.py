"""The points that KETI's GPU-Scheduler gives a GPU, as its documentation of December 2021 has them.

Each of three stages gives a third of 100: free memory against the largest GPU of the cluster, free memory against the
GPU's own, and how few pods are on it. From the eleventh pod on a GPU is worth nothing.
"""

import math

from gpushare.core.facts.scoring.load import GpuLoad, Terms

STAGES = 3
PODS_POINTS = 10  # that each pod on the GPU costs, of 100
UNKNOWN = 2  # of a GPU whose use is unknown, one part in so many counts as free: neither idle nor full


def rounded(value: float) -> int:
    """Half away from zero, as Go rounds. No value here is negative."""
    return math.floor(value + 0.5)


def terms(load: GpuLoad, largest: int) -> Terms:
    """`largest`: memory of the largest GPU of the cluster, in MiB."""
    left = 100 - PODS_POINTS * load.pods
    if left < 0:
        return (("LeastGPUMemoryUsage", 0), ("LeastGPUMemoryUtilization", 0), ("LeastAllocatedPodGPU", 0))
    free = _free(load)
    return (
        ("LeastGPUMemoryUsage", rounded(free / max(largest, load.total, 1) * 100 / STAGES)),
        ("LeastGPUMemoryUtilization", rounded(free / max(load.total, 1) * 100 / STAGES)),
        ("LeastAllocatedPodGPU", left // STAGES),
    )


def points(load: GpuLoad, largest: int) -> int:
    """The sum of `terms`, without making them: it is worked out for every GPU that changes."""
    left = 100 - PODS_POINTS * load.pods
    if left < 0:
        return 0
    free = _free(load) * 100
    of_largest = free / max(largest, load.total, 1) / STAGES
    return rounded(of_largest) + rounded(free / max(load.total, 1) / STAGES) + left // STAGES


def _free(load: GpuLoad) -> int:
    if load.used is not None:
        return max(load.total - load.used, 0)
    return max(min(load.total - load.granted, load.total // UNKNOWN), 0)
