"""What was broken once stays mended: see `points`."""

import pytest

from tests.adversary import life, points
from tests.adversary.world import Counts


@pytest.mark.parametrize("name", points.STORIES)
def test_a_promise_that_was_broken_once_is_kept(name: str) -> None:
    found = life.broken(points.STORIES[name])
    assert isinstance(found, Counts), f"{name}: {found}"
