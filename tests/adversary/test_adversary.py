"""Whatever anybody does: no GPU is sold twice, nobody is shut out, nobody waits for what is free, no call costs much.

The seeds are fixed, so that a run is the same every time; `make soak` takes new ones for as long as it is let.
"""

import pytest

from tests.adversary import adversary, life
from tests.adversary.accountant import Accountant, Published, Wrong
from tests.adversary.world import Counts, Deed, Story

LIVES, PART = 240, 30  # clusters in all, and in one test


@pytest.mark.parametrize("first", range(0, LIVES, PART))
def test_whatever_happens_the_promises_hold(first: int) -> None:
    for seed in range(first, first + PART):
        found = life.live(seed)
        assert isinstance(found, Counts), str(found)


def test_a_seed_always_tells_the_same_story() -> None:
    assert adversary.story(7) == adversary.story(7)
    assert adversary.story(7) != adversary.story(8)


def test_a_story_that_breaks_a_promise_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accountant errs on purpose: where pod `a` lives, he counts a unit too much."""
    used = Accountant.used

    def too_much(self: Accountant, name: str, there: Published, gpu: int) -> tuple[int, int]:
        least, most = used(self, name, there, gpu)
        return (least + ("a" in [pod["metadata"]["name"] for _, pod, _ in self.living(name)]), most)

    monkeypatch.setattr(Accountant, "used", too_much)
    noise: list[Deed] = [("wait", 1), ("pod", {"name": "b", "containers": {"main": 1}}), ("repeat", True)]
    needed: list[Deed] = [("node", {"n0": {"gpus": [8000]}}), ("pod", {"name": "a", "containers": {"main": 5000}})]
    story = Story({}, [*noise, needed[0], *noise, needed[1], *noise])
    wrong = life.broken(story)
    assert isinstance(wrong, Wrong)
    wrong, short = life.shortened(story, wrong)
    assert (wrong.kind, short.deeds) == ("too free", needed)
