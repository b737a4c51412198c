"""Which GPUs a pod should get by points, and what a link between two of them is worth."""

import pytest

from gpushare.core.facts.model import Gpu
from gpushare.core.facts.scoring.order import Order, links


@pytest.mark.parametrize(
    ("points", "linked", "percent", "gpus", "chosen"),
    [
        ((90, 80, 70, 60), (), 10, 2, (0, 1)),
        ((90, 80, 78, 77), ((2, 3),), 10, 2, (2, 3)),  # 77.5 and 10 % is 85.25: as much as 90 and 80
        ((90, 80, 78, 76), ((2, 3),), 10, 2, (2, 3)),
        ((90, 81, 78, 75), ((2, 3),), 10, 2, (0, 1)),
        ((90, 80, 78, 77), ((2, 3),), 0, 2, (0, 1)),
        ((90, 80, 70, 69), ((2, 3),), 50, 3, (2, 3, 0)),  # an odd one is the best of the rest
        ((50, 50, 50, 50), ((0, 1), (0, 2)), 10, 2, (0, 1)),  # no GPU is taken twice through two links
        ((50, 50, 50, 50), ((0, 1), (0, 2)), 10, 4, (0, 1, 2, 3)),
        ((90,), (), 10, 3, (0,)),
    ],
)
def test_linked_gpus_are_worth_more(
    points: tuple[int, ...],
    linked: tuple[tuple[int, int], ...],
    percent: int,
    gpus: int,
    chosen: tuple[int, ...],
) -> None:
    assert Order(points, linked, percent).first(range(len(points)), gpus) == chosen


def test_gpus_are_worth_the_mean_of_their_points_with_what_links_add() -> None:
    assert Order((99, 64)).worth((0, 1)) == 82
    assert Order((80, 80), ((0, 1),), 10).worth((1, 0)) == 88
    assert Order((80, 80, 20), ((0, 1),), 10).worth((0, 1, 2)) == 65
    assert Order((80, 80)).worth((0, 0)) == 80
    assert Order(()).worth(()) == 0


def test_links_are_read_from_either_end_and_unknown_gpus_are_left_out() -> None:
    gpus = (
        Gpu(0, "a", 8, links=(("b", 4), ("gone", 2))), Gpu(1, "b", 8), Gpu(2, "c", 8, links=(("c", 1), ("a", 0))),
    )  # fmt: skip
    assert links(gpus) == ((0, 1),)
