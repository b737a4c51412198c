"""How many MPS clients a node's GPUs serve, and what an equal part is."""

import pytest

from gpushare.core.facts.mps import clients


@pytest.mark.parametrize(
    ("capabilities", "most"),
    [
        ([], 48),
        (["8.0"], 48),
        (["7.5", "9.0"], 48),
        (["10.0"], 48),
        (["7.0"], 16),
        (["8.0", "6.1"], 16),
        ([""], 48),
        (["x.y", "8.0"], 48),
    ],
)
def test_a_node_serves_as_many_as_the_gpu_that_serves_fewest(capabilities: list[str], most: int) -> None:
    assert clients.most(capabilities) == most


def test_equal_parts_are_rounded_down_and_never_nothing() -> None:
    assert (clients.memory_mib(16276, 10), clients.threads(10)) == (1627, 10)
    assert (clients.memory_mib(16276, 3), clients.threads(3)) == (5425, 33)
    assert (clients.memory_mib(16276, 1), clients.threads(1)) == (16276, 100)
    assert (clients.memory_mib(10, 48), clients.threads(200)) == (1, 1)
