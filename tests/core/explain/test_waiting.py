"""How many pods wait, since when and why."""

from collections.abc import Collection, Mapping

import pytest
from msgspec.structs import replace

from gpushare.core.explain import waiting
from gpushare.core.explain.waiting import Waiting, WaitingPods
from gpushare.core.facts.model import PodFacts, Rules
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.steps import finish
from tests.support.builders import bound, facts, ledger, pod

NOW = 1_800_000_000.0
CREATED = 1_794_744_000.0  # 2026-11-15T12:00:00Z


def refused(*memory: int, **more: object) -> PodFacts:
    return pod(*memory, unschedulable="0/1 nodes are available", **more)  # type: ignore[arg-type]


def everywhere(_: PodFacts) -> Collection[str] | None:
    return None


def counted(of: Ledger, *pods: PodFacts, by: WaitingPods | None = None) -> Mapping[str, Waiting]:
    return finish((by or WaitingPods()).counting(of, pods, everywhere, NOW))


@pytest.fixture
def full() -> Ledger:
    """5 of 8 MiB are held on each of two GPUs."""
    node = facts(8, 8)
    made = ledger(node)
    for gpu in range(2):
        made.observe(bound(pod(5), node, ((gpu,),)), 0.0)
    return made


def test_pods_are_counted_by_what_the_closest_node_says(full: Ledger) -> None:
    found = counted(full, refused(4), refused(5), refused(9), refused(1), refused(whole=1))
    assert {code: group.pods for code, group in found.items()} == {
        "NoSingleGpu": 2, "TooLarge": 1, "Fits": 1, "NoWholeGpu": 1
    }  # fmt: skip


def test_the_first_that_waits_is_told(full: Ledger) -> None:
    found = counted(full, refused(4, created="2026-11-15T12:05:00Z"), refused(4), refused(4))
    assert found == {"NoSingleGpu": Waiting(3, CREATED)}


def test_a_clock_that_is_ahead_makes_no_negative_wait(full: Ledger) -> None:
    assert counted(full, refused(4, created="2036-11-15T12:05:00Z"))["NoSingleGpu"].since == NOW


def test_who_was_not_refused_or_has_a_place_does_not_wait(full: Ledger) -> None:
    assumed = refused(2)
    full.assume(assumed, "n", "binpack", 0.0)
    assert counted(full, pod(4), assumed) == {}


def test_a_request_that_makes_no_sense_waits_with_its_own_code(full: Ledger) -> None:
    (code,) = counted(full, refused(4, unit="pounds"))
    assert code == "UnknownUnit"


def test_only_nodes_that_a_pod_may_use_are_asked(full: Ledger) -> None:
    picky = replace(refused(1), rules=Rules(selector=(("zone", "b"),)))
    steps = WaitingPods().counting(full, [picky], lambda one: [] if one.rules else None, NOW)
    assert finish(steps).keys() == {"NoSharedGpu"}


def test_too_many_different_pods_are_looked_at_in_turn(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_ANSWERS", 2)
    by, pods = WaitingPods(), [refused(size) for size in (4, 5, 6, 7)]
    assert {code: group.pods for code, group in counted(full, *pods, by=by).items()} == {
        "NoSingleGpu": 2, waiting.NOT_LOOKED_AT: 2
    }  # fmt: skip
    assert counted(full, *pods, by=by)["NoSingleGpu"].pods == 4
    full.set_node(facts(8, 8, 8))  # from now on there is room for all
    assert {code: group.pods for code, group in counted(full, *pods, by=by).items()} == {"Fits": 2, "NoSingleGpu": 2}
    assert counted(full, *pods, by=by).keys() == {"Fits"}


def test_what_is_remembered_of_pods_with_many_containers_is_small() -> None:
    """The garbage collector stops everything for as long as it looks through what is remembered."""
    by, of = WaitingPods(), ledger(facts(8))
    counted(of, *[refused(*[size] * 30) for size in range(9, 59)], by=by)
    assert len(by._groups) == 50
    assert all(type(key) is bytes for key in by._groups)


def test_pods_that_ask_for_different_things_or_nodes_are_not_taken_for_one(full: Ledger) -> None:
    zone = Rules(selector=(("zone", "b"),))
    pods = [refused(4), refused(4, 4), refused(8, split=2), refused(whole=1), refused(nvidia=1), refused(4, unit="GiB")]
    pods += [replace(refused(4), rules=zone), refused(4, direct=False)]
    by = WaitingPods()
    counted(full, *pods, *pods, by=by)
    assert len(by._groups) == len(pods)
