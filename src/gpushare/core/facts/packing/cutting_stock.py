"""What parts of a GPU are worth, by the sizes that people ask for.

A GPU is stock that is cut into shares. The fewest GPUs that serve all shares are the answer of a linear programme: one
variable for each way to cut a GPU, one row for each size. Its dual prices say what a share of a size is worth in GPUs.
The programme starts with one way for each size, and ways that would save GPUs are found by the prices and added, until
there are none. Then what is left of a GPU is worth what the best shares that fit into it are worth.
"""

from collections.abc import Sequence
from typing import Any

_TINY = 1e-9
_SAVES = 1e-7  # GPUs: less is rounding

Way = tuple[int, ...]  # how many shares of each size are cut from one GPU


def prices(capacity: int, sizes: Sequence[int], demand: Sequence[float]) -> list[float]:
    """What a share of each size is worth, in GPUs of that capacity, if people want so many shares of each size: at
    least one. No size is larger than the capacity. The revised simplex method."""
    rows = range(len(sizes))
    ways = [_only(capacity, sizes, row) for row in rows]
    inverse = [[1 / ways[row][row] if row == column else 0.0 for column in rows] for row in rows]
    cost = [1.0 for _ in rows]  # of the way in each row: one GPU, or none if shares of a size are one too many
    amount = [wanted / ways[row][row] for row, wanted in enumerate(demand)]
    each = [inverse[row][row] for row in rows]
    for _ in range(60 * len(sizes)):  # it ends far earlier; the bound is for rounding that would go round in circles
        entering = _entering(capacity, sizes, each)
        if entering is None:
            break
        way, price = entering
        parts = [(row, count) for row, count in enumerate(way) if count]
        change = [sum([line[row] * count for row, count in parts]) for line in inverse]
        able = [(amount[row] / change[row], row) for row in rows if change[row] > _TINY]
        if not able:
            break
        leaving = min(able)[1]
        _pivot(inverse, amount, change, leaving)
        cost[leaving] = price
        each = [sum([cost[row] * inverse[row][column] for row in rows if cost[row]]) for column in rows]
    return [max(price, 0.0) for price in each]


def worth(capacity: int, sizes: Sequence[int], each: Sequence[float]) -> tuple[list[int], list[float]]:
    """The steps of the value of what is left: from how many units on, and what the best shares in it are worth."""
    steps = _steps(capacity, sizes, each)
    return [used for used, _, _ in steps], [value for _, value, _ in steps]


def _only(capacity: int, sizes: Sequence[int], row: int) -> Way:
    return tuple([capacity // size if at == row else 0 for at, size in enumerate(sizes)])


def _entering(capacity: int, sizes: Sequence[int], each: list[float]) -> tuple[Way, float] | None:
    """A way that saves GPUs at these prices, and what it costs."""
    lowest = min(each)
    if lowest < -_TINY:
        return tuple([-int(at == each.index(lowest)) for at in range(len(each))]), 0.0
    best = _steps(capacity, sizes, each)[-1]
    return (_shares(best, len(sizes)), 1.0) if best[1] > 1 + _SAVES else None


def _pivot(inverse: list[list[float]], amount: list[float], change: list[float], leaving: int) -> None:
    inverse[leaving] = line = [value / change[leaving] for value in inverse[leaving]]
    amount[leaving] = taken = amount[leaving] / change[leaving]
    for row, factor in enumerate(change):
        if row != leaving and factor:
            inverse[row] = [a - factor * b for a, b in zip(inverse[row], line, strict=True)]
            amount[row] = max(amount[row] - factor * taken, 0.0)


_Step = tuple[int, float, Any]  # units used, what they are worth, and the step before with the size that it lacks


def _steps(capacity: int, sizes: Sequence[int], each: Sequence[float]) -> list[_Step]:
    """The best value of the shares that fit, where it grows: in rising order of units."""
    front: list[_Step] = [(0, 0.0, None)]
    for at, size in sorted(enumerate(sizes), key=lambda pair: -pair[1]):
        if each[at] > _TINY:
            front = _with(front, capacity, size, each[at], at)
    return front


def _with(front: list[_Step], capacity: int, size: int, price: float, at: int) -> list[_Step]:
    """The steps with any number of shares of one more size: the old steps and the new ones, merged in order."""
    merged: list[_Step] = []
    top, old, new = -1.0, 0, 0
    while True:
        base = merged[new] if new < len(merged) and merged[new][0] + size <= capacity else None
        if old < len(front) and (base is None or front[old][0] <= base[0] + size):
            step, old = front[old], old + 1
        elif base is not None:
            step, new = (base[0] + size, base[1] + price, (base, at)), new + 1
        else:
            return merged
        if step[1] > top + _TINY:
            top = step[1]
            if merged and merged[-1][0] == step[0]:
                merged.pop()
            merged.append(step)


def _shares(step: _Step, sizes: int) -> Way:
    """How many of each size are in a step."""
    counts = [0] * sizes
    while step[2] is not None:
        step, at = step[2]
        counts[at] += 1
    return tuple(counts)
