"""How many pods wait, and why, is counted without holding up everything else."""

import pytest

from gpushare.dashboard.live import waits
from gpushare.dashboard.live.waits import Waiting
from gpushare.view.why import waiting
from tests.dashboard.live import world
from tests.dashboard.live.world import Clock, World


def codes(api: World) -> dict[str, int]:
    return Waiting(api.live, Clock()).counts().codes


def test_codes_are_those_of_inspect() -> None:
    api = World()
    api.put_node(world.node(8000, 8000))
    for name, amount in (("a", 9000), ("b", 9500), ("c", 500), ("d", 500)):
        api.put_pod(world.pod(amount, name=name))
    api.put_pod(world.pod(name="e", nvidia=1, direct=False))
    api.put_pod(world.pod(500, name="f", policy="whatever"))
    api.put_pod(world.pod(500, name="g", on="n", gpus=["GPU-n-0"]))
    cluster = api.live.snapshot()
    said = [one.answer.code for one in waiting.pods(cluster, waiting.who(cluster))]
    assert codes(api) == {code: said.count(code) for code in sorted(set(said))}
    assert codes(api) == {"Fits": 2, "NotSold": 1, "TooLarge": 2, "UnknownPolicy": 1}


def test_the_oldest_is_when_the_first_of_them_was_created() -> None:
    api = World()
    api.put_pod(world.pod(500, name="a", created="2026-11-15T12:00:09Z"))
    api.put_pod(world.pod(500, name="b", created="2026-11-15T12:00:05Z"))
    assert Waiting(api.live, Clock()).counts().oldest == world.NOW - 1795
    assert Waiting(World().live, Clock()).counts() == waits.Counts(0, -1, {})


def test_a_pod_that_got_its_place_waits_no_longer() -> None:
    api = World()
    api.put_node(world.node(8000))
    api.put_pod(world.pod(9000, name="a"))
    counting = Waiting(api.live, Clock())
    assert counting.counts().count == 1
    api.end_pod("uid-a")
    assert counting.counts() == waits.Counts()


class Slow(Clock):
    """Looking at the time costs time: so does whatever happens between two looks."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self._step = step

    def __call__(self) -> float:
        self.time += self._step
        return self.time


def test_many_reasons_are_found_out_in_short_turns() -> None:
    api = World()
    api.put_node(world.node(8000))
    for number in range(5):
        api.put_pod(world.pod(9000 + number, name=f"p{number}"))
    counting = Waiting(api.live, Slow(0.015))
    found = [sum(counting.counts().codes.values()) for _ in range(4)]
    assert found == [2, 4, 5, 5]
    assert counting.counts().count == 5


def test_after_a_long_turn_nothing_is_looked_at_for_a_while() -> None:
    api = World()
    api.put_node(world.node(8000))
    for number in range(3):
        api.put_pod(world.pod(9000 + number, name=f"p{number}"))
    clock = Slow(0.1)
    counting = Waiting(api.live, clock)
    assert [sum(counting.counts().codes.values()) for _ in range(3)] == [1, 1, 1]
    clock.time += waits.REST_SECONDS
    assert sum(counting.counts().codes.values()) == 2


def test_nothing_is_worked_out_anew_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    api = World()
    api.put_node(world.node(8000))
    api.put_pod(world.pod(9000, name="a"))
    counting = Waiting(api.live, Clock())
    first = counting.counts()
    monkeypatch.setattr(waiting, "pods", lambda *_: pytest.fail("asked again"))
    monkeypatch.setattr(waiting, "who", lambda *_: pytest.fail("asked again"))
    api.put_gpunode(world.gpunode({"usedMiB": 1}))  # what GPUs do changes no reason
    assert counting.counts() == first


def test_a_reason_is_looked_at_again_after_a_change() -> None:
    api = World()
    api.put_node(world.node(8000))
    api.put_pod(world.pod(8000, name="a"))
    counting = Waiting(api.live, Clock())
    assert counting.counts().codes == {"Fits": 1}
    api.put_pod(world.pod(500, name="b", on="n", gpus=["GPU-n-0"]))
    assert counting.counts().codes == {"NoSingleGpu": 1}


def test_reasons_of_pods_that_are_gone_are_not_kept() -> None:
    api = World()
    api.put_pod(world.pod(9000, name="a"))
    counting = Waiting(api.live, Clock())
    counting.counts()
    api.end_pod("uid-a")
    counting.counts()
    assert not counting._known
