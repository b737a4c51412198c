"""The tester is worth something only if it finds what was broken: with a mend taken out it must."""

import pytest

from tests.adversary import adversary, life, mutants, points
from tests.adversary.accountant import Wrong

MOST_LIVES = 1500
FROM = {"1": 159, "2": 10, "3": 2, "4": 17, "5": 10, "8": 21, "9": 4}  # seeds: lives that find nothing cost time
BROKEN_BY = {  # what the random lives complain of when a mend is missing
    "1": {"too dear"},
    "2": {"too free", "closed", "sold twice", "waits", "not woken"},
    "3": {"too free", "closed", "sold twice", "waits", "not woken", "no event", "node"},
    "4": {"closed", "waits", "not woken"},
    "5": {"sold twice", "too free"},
    "8": {"not woken"},
    "9": {"no event"},
}


@pytest.mark.parametrize("point", mutants.TAKEN_OUT)
def test_a_story_of_its_own_finds_the_missing_mend(point: str) -> None:
    with mutants.without(point):
        told = {name: life.broken(story) for name, story in points.STORIES.items() if name.startswith(point)}
    assert any(isinstance(found, Wrong) and found.kind in BROKEN_BY[point] for found in told.values()), told


@pytest.mark.parametrize("point", mutants.TAKEN_OUT)
def test_random_lives_find_the_missing_mend(point: str) -> None:
    with mutants.without(point):
        lives = (life.broken(adversary.story(seed)) for seed in range(FROM[point], MOST_LIVES))
        assert any(isinstance(end, Wrong) and end.kind in BROKEN_BY[point] for end in lives)
