"""Cutting stock: the prices are the best ones, as a slow search over all ways to cut a GPU confirms."""

import csv
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.packing import cutting_stock

TRACES = Path(os.environ.get("DATA", ""), "traces")
NEAR = 1e-6


def ways(capacity: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All of them, also those that leave room."""
    if not sizes:
        yield ()
        return
    for count in range(capacity // sizes[0] + 1):
        for rest in ways(capacity - count * sizes[0], sizes[1:]):
            yield (count, *rest)


def solved(rows: Sequence[tuple[int, ...]], right: Sequence[float]) -> list[float] | None:
    """Linear equations, as many as unknowns."""
    table = [[*map(float, row), value] for row, value in zip(rows, right, strict=True)]
    for at in range(len(table)):
        pivot = max(range(at, len(table)), key=lambda row: abs(table[row][at]))
        if abs(table[pivot][at]) < NEAR:
            return None
        table[at], table[pivot] = table[pivot], table[at]
        for row in range(len(table)):
            if row != at:
                factor = table[row][at] / table[at][at]
                table[row] = [a - factor * b for a, b in zip(table[row], table[at], strict=True)]
    return [row[-1] / row[at] for at, row in enumerate(table)]


def dearest(capacity: int, sizes: Sequence[int], demand: Sequence[float]) -> float:
    """The most that the demand can be worth with no way worth more than a GPU: looked for in all corners."""
    limits = [(way, 1.0) for way in ways(capacity, sizes) if any(way)]
    limits += [(tuple([int(at == row) for at in range(len(sizes))]), 0.0) for row in range(len(sizes))]
    best = 0.0
    for corner in combinations(limits, len(sizes)):
        prices = solved([way for way, _ in corner], [right for _, right in corner])
        if prices is not None and _allowed(prices, limits):
            best = max(best, sum([price * wanted for price, wanted in zip(prices, demand, strict=True)]))
    return best


def _allowed(prices: Sequence[float], limits: Sequence[tuple[tuple[int, ...], float]]) -> bool:
    return min(prices) >= -NEAR and all(
        sum([count * price for count, price in zip(way, prices, strict=True)]) <= most + NEAR
        for way, most in limits
        if most
    )


@given(
    st.lists(st.tuples(st.integers(30, 99), st.integers(1, 50)), min_size=1, max_size=3, unique_by=lambda row: row[0])
)
def test_the_prices_are_as_good_as_the_best_corner(rows: list[tuple[int, int]]) -> None:
    sizes, demand = [size for size, _ in rows], [float(count) for _, count in rows]
    prices = cutting_stock.prices(100, sizes, demand)
    limits = [(way, 1.0) for way in ways(100, sizes) if any(way)]
    assert _allowed(prices, limits)
    worth = sum([price * wanted for price, wanted in zip(prices, demand, strict=True)])
    assert worth == pytest.approx(dearest(100, sizes, demand), abs=NEAR)


@given(
    st.lists(st.tuples(st.integers(10, 99), st.floats(0.0, 1.0)), min_size=1, max_size=5, unique_by=lambda row: row[0]),
    st.integers(0, 100),
)
def test_what_is_left_is_worth_the_best_shares_that_fit(rows: list[tuple[int, float]], left: int) -> None:
    sizes, prices = [size for size, _ in rows], [price for _, price in rows]
    steps, values = cutting_stock.worth(100, sizes, prices)
    best = max([sum([n * price for n, price in zip(way, prices, strict=True)]) for way in ways(left, sizes)])
    assert values[bisect_right(steps, left) - 1] == pytest.approx(best, abs=NEAR)
    assert steps == sorted(set(steps))
    assert values == sorted(values)


def test_two_sizes_that_fill_a_gpu_together_are_worth_one_together() -> None:
    assert sum(cutting_stock.prices(100, [60, 40], [5.0, 5.0])) == pytest.approx(1.0)


def test_a_hole_that_nobody_fits_is_worth_nothing() -> None:
    prices = cutting_stock.prices(100, [81], [10.0])
    assert prices == [pytest.approx(1.0)]
    assert cutting_stock.worth(100, [81], prices) == ([0, 81], [0.0, pytest.approx(1.0)])


@pytest.mark.skipif(not TRACES.is_dir(), reason="DATA=FOLDER, with the published traces, is not set")
def test_the_hole_under_the_commonest_pod_of_the_published_trace_is_worth_nothing_and_half_a_gpu_is_half() -> None:
    with (TRACES / "openb_pod_list_default.csv").open() as file:
        counts = Counter(
            [
                int(row["gpu_milli"])
                for row in csv.DictReader(file)
                if row["num_gpu"] == "1" and 100 <= int(row["gpu_milli"]) < 1000
            ]
        )
    sizes = sorted(counts, key=lambda size: -counts[size] * size)[:14]
    steps, values = cutting_stock.worth(
        1000, sizes, cutting_stock.prices(1000, sizes, [float(counts[size]) for size in sizes])
    )
    worth = [round(1000 * values[bisect_right(steps, left) - 1]) for left in (190, 210, 230, 470, 530, 810, 1000)]
    assert worth == [0, 0, 250, 500, 500, 1000, 1000]
