"""The points of policy `metric`: 100 for a GPU that is idle, cool and empty.

What is measured counts, and what was promised counts too: the memory of a GPU is as good as the smaller of what is not
given out and what is not used. A figure that is unknown gives half of its points: neither good nor bad, never idle.
"""

from gpushare.core.facts.scoring.load import GpuLoad, Terms

MEMORY, UTILIZATION, TEMPERATURE, POWER, SHARES, OVER_USE = 30, 25, 10, 10, 15, 10  # 100 together
COOL = 40  # °C below the GPU's own limit: from there on it is cool enough


def terms(load: GpuLoad, largest: int) -> Terms:
    return (
        ("memory", _memory(load)),
        ("utilization", _part(UTILIZATION, load.utilization, 100)),
        ("temperature", _temperature(load)),
        ("power", _part(POWER, load.power, load.power_limit)),
        ("shares", _shares(load)),
        ("over-use", _over_use(load)),
    )


def points(load: GpuLoad, largest: int) -> int:
    """The sum of `terms`."""
    return (
        _memory(load)
        + _part(UTILIZATION, load.utilization, 100)
        + _temperature(load)
        + _part(POWER, load.power, load.power_limit)
        + _shares(load)
        + _over_use(load)
    )


def _memory(load: GpuLoad) -> int:
    used = load.used if load.used is not None else load.total // 2
    taken = max(load.granted, used)
    return MEMORY * max(load.total - taken, 0) // max(load.total, 1)


def _part(most: int, value: float | None, limit: float | None) -> int:
    """Less for more of it; half if it is unknown."""
    if value is None or not limit:
        return most // 2
    return max(round(most * (1 - min(value / limit, 1.0))), 0)


def _temperature(load: GpuLoad) -> int:
    if load.temperature is None or not load.temperature_limit:
        return TEMPERATURE // 2
    below = max(min(load.temperature_limit - load.temperature, COOL), 0)
    return TEMPERATURE * below // COOL


def _shares(load: GpuLoad) -> int:
    return SHARES * max(load.most_pods - load.pods, 0) // max(load.most_pods, 1)


def _over_use(load: GpuLoad) -> int:
    if load.over_used is None:
        return OVER_USE // 2
    return 0 if load.over_used else OVER_USE
