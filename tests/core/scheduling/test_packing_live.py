"""Policies that pack, as live clusters have it: requests in MiB, and GPUs of unequal sizes."""

from collections.abc import Hashable
from typing import cast

import msgspec
import pytest

from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Refusal, Request
from gpushare.core.facts.packing.model import Ask, Mixture, Scorer
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.order.ranked import Ranked
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.mix import Mix
from gpushare.core.steps import finish
from tests.support import builders

PACKING = [name for name, policy in POLICIES.items() if policy.packing is not None]
GIB = 1024
CLASSES = {"t4": (15360, "T4"), "a10": (23028, "A10"), "a100": (40960, "A100"), "h100": (81559, "H100")}


def cluster(*expected: PodFacts) -> Ledger:
    """A node of each class with four GPUs, after ten pods of each of these came."""
    ledger, mix = Ledger(), Mix()
    for name, (total, model) in CLASSES.items():
        gpus = tuple([Gpu(i, f"GPU-{name}-{i}", total, model=model) for i in range(4)])
        ledger.set_node(NodeFacts(name, "MiB", Pin.DIRECT, gpus))
        ledger.offer(name, 64_000, 512 * GIB)
    for number, pod in enumerate(expected):
        for copy in range(10):
            mix.add(f"{number}-{copy}", Ask.of(pod), None)
    ledger.learn(mix.mixture(ledger))
    return ledger


def asks(gib: int, cpu: int = 2000) -> PodFacts:
    return msgspec.structs.replace(builders.pod(gib * GIB), cpu=cpu, memory=2 * gib * GIB)


def place(ledger: Ledger, policy: str, pod: PodFacts) -> str | None:
    assert isinstance(pod.request, Request)
    node = ranking.first(ledger, pod.request, pod, list(CLASSES), policy)
    if node is not None:
        assert not isinstance(ledger.assume(pod, node, policy, 0.0), Refusal)
    return node


@pytest.mark.parametrize("policy", PACKING)
def test_every_pod_that_fits_somewhere_gets_a_place(policy: str) -> None:
    ledger = cluster(asks(4), asks(60))
    for gib in (4, 12, 20, 36, 60):
        assert place(ledger, policy, asks(gib)) is not None
    assert place(ledger, policy, asks(90)) is None


@pytest.mark.parametrize("policy", ["fgd", "vrc"])
def test_the_largest_gpus_are_left_to_pods_that_fit_nowhere_else(policy: str) -> None:
    sizes = (4, 12, 20, 36, 60)
    ledger = cluster(*map(asks, sizes))
    small = [place(ledger, policy, asks(gib)) for gib in (4, 12, 20, 4, 12, 20)]
    assert "h100" not in small
    assert [place(ledger, policy, asks(60)) for _ in range(4)] == ["h100"] * 4


@pytest.mark.parametrize("policy", PACKING)
def test_a_node_whose_cpu_is_used_up_by_others_comes_last(policy: str) -> None:
    ledger = cluster(asks(4))
    first = place(ledger, policy, asks(4))
    assert first is not None
    ledger.use("web", first, 64_000, 0)
    assert place(ledger, policy, asks(4)) != first


@pytest.mark.parametrize("policy", PACKING)
def test_nothing_is_known_of_cpu_and_memory_and_pods_are_placed_all_the_same(policy: str) -> None:
    ledger = builders.ledger(builders.facts(8, 8, name="a"), builders.facts(8, 8, name="b"))
    pod = builders.pod(4)
    assert isinstance(pod.request, Request)
    assert ranking.first(ledger, pod.request, pod, ["a", "b"], policy) in ("a", "b")


@pytest.mark.parametrize("policy", PACKING)
def test_several_containers_whole_gpus_and_mps_shares_are_placed_too(policy: str) -> None:
    ledger = Ledger()
    for name in ("a", "b"):
        ledger.set_node(builders.facts(8, 8, 8, 8, name=name, slots=2))
        ledger.offer(name, 8000, 8000)
    for pod in (builders.pod(4, 3), builders.pod(whole=1), builders.pod(mps=1), builders.pod(6, split=2)):
        assert isinstance(pod.request, Request)
        node = ranking.first(ledger, pod.request, pod, ["a", "b"], policy)
        assert node is not None
        assert not isinstance(ledger.assume(pod, node, policy, 0.0), Refusal)


@pytest.mark.parametrize("policy", PACKING)
@pytest.mark.parametrize("pod", [builders.pod(4), builders.pod(whole=1), builders.pod(4, 3), builders.pod(6, split=2)])
def test_a_gpu_that_does_not_say_its_size_does_no_harm(policy: str, pod: PodFacts) -> None:
    ledger, mix = Ledger(), Mix()
    for name, sizes in (("a", (8, 0, 8)), ("b", (0, 0)), ("c", ())):
        gpus = tuple([Gpu(i, f"GPU-{name}-{i}", total, total > 0) for i, total in enumerate(sizes)])
        ledger.set_node(NodeFacts(name, "MiB", Pin.DIRECT, gpus))
    mix.add("1", Ask.of(pod), None)
    for _ in range(2):
        assert isinstance(pod.request, Request)
        assert ranking.first(ledger, pod.request, pod, ["a", "b", "c"], policy) == "a"
        assert ranking.first(ledger, None, msgspec.structs.replace(pod, request=None), ["b"], policy) == "b"
        ledger.learn(mix.mixture(ledger))
    assert not isinstance(ledger.assume(pod, "a", policy, 0.0), Refusal)


# When policies learn


def test_what_is_worked_out_before_policies_learn_is_what_would_be_found_after() -> None:
    ledger, pods = cluster(asks(4)), [asks(4), asks(12), asks(20)]
    for pod in pods:
        place(ledger, "vrc", pod)
    for number, pod in enumerate(pods):
        place(ledger, "vrc", msgspec.structs.replace(pod, uid=f"again {number}"))
    mix = Mix()
    for number in range(30):
        mix.add(str(number), Ask.of(asks(4 + 10 * (number % 3))), None)
    mixture = mix.mixture(ledger)
    scorers = made_for(mixture)
    before = {what: dict(order.keys) for _, what, order in ledger.orders(list(ledger.scorers.values()))}
    ready = finish(ranking.relearning(ledger, scorers))
    assert before == {what: dict(order.keys) for _, what, order in ledger.orders(list(ledger.scorers.values()))}
    assert len(ready) == 3
    ledger.learn(mixture, scorers, ready)
    kept = {what: order for _, what, order in ledger.orders(list(scorers.values()))}
    assert all(kept[what] is order and not order.open for _, what, order in ready)
    for pod in pods:
        assert isinstance(pod.request, Request)
        one = ranking.best(ledger, pod.request, pod, list(CLASSES), "vrc")
        ledger._orders.replace(pod.namespace, _what(ledger, pod), Ranked())
        assert one == ranking.best(ledger, pod.request, pod, list(CLASSES), "vrc")


def made_for(mixture: Mixture) -> dict[str, Scorer]:
    make = POLICIES["vrc"].packing
    assert make is not None
    return {"vrc": make(mixture)}


def _what(ledger: Ledger, pod: PodFacts) -> Hashable:
    kept = [cast(tuple[object, ...], what) for _, what, _ in ledger.orders(list(ledger.scorers.values()))]
    return next(what for what in kept if what[2:] == (pod.cpu, pod.memory))


def test_a_node_that_changes_while_policies_learn_is_looked_at_again() -> None:
    ledger, pod = cluster(asks(4)), asks(4)
    chosen = place(ledger, "vrc", pod)
    assert chosen is not None
    scorers = made_for(ledger.mixture)
    ready = finish(ranking.relearning(ledger, scorers))
    ledger.use("web", chosen, 64_000, 0)
    ledger.learn(ledger.mixture, scorers, ready)
    assert place(ledger, "vrc", msgspec.structs.replace(pod, uid="another")) != chosen


def test_a_node_that_goes_while_policies_learn_is_not_chosen() -> None:
    ledger, pod = cluster(asks(4)), asks(4)
    chosen = place(ledger, "vrc", pod)
    assert chosen is not None
    scorers = made_for(ledger.mixture)
    steps = ranking.relearning(ledger, scorers)
    next(steps)
    ledger.forget(pod.uid)
    ledger.remove_node(chosen)
    ledger.learn(ledger.mixture, scorers, finish(steps))
    assert place(ledger, "vrc", asks(4)) not in (None, chosen)


def large_cluster() -> Ledger:
    """More nodes than a call can look at, no two alike: the last by name has the smallest GPUs, and least CPU."""
    ledger = Ledger()
    for number in range(1200):
        gpus = tuple([Gpu(i, f"GPU-{number}-{i}", 80_000 - 8 * number - i, model="A100") for i in range(8)])
        ledger.set_node(NodeFacts(f"n{number:04}", "MiB", Pin.DIRECT, gpus))
        ledger.offer(f"n{number:04}", 64_000 - 10 * number, 512 * GIB)
    return ledger


def hurried(ledger: Ledger, pod: PodFacts) -> str | None:
    assert isinstance(pod.request, Request)
    return ranking.first(ledger, pod.request, pod, list(ledger.node_names()), "best-fit", Budget(CALL_LOOKS))


def test_a_sort_that_never_came_goes_where_those_like_it_go_also_if_a_call_cannot_look_at_all_nodes() -> None:
    ledger = large_cluster()
    known = asks(8)
    assert isinstance(known.request, Request)
    best = ranking.first(ledger, known.request, known, list(ledger.node_names()), "best-fit")  # looks at all of them
    assert hurried(ledger, asks(9, cpu=2100)) == best


def test_a_sort_that_fits_nowhere_where_those_like_it_go_gets_a_place_all_the_same() -> None:
    ledger = large_cluster()
    known, large = asks(8), msgspec.structs.replace(builders.pod(78_000), cpu=2000, memory=GIB)
    assert isinstance(known.request, Request)
    ranking.first(ledger, known.request, known, list(ledger.node_names()), "best-fit")
    node = hurried(ledger, large)
    assert node is not None
    assert isinstance(large.request, Request)
    assert ledger.fitting(large.request, large, [node]) == [node]


def test_the_pods_of_a_new_sort_look_at_all_nodes_in_the_end() -> None:
    ledger = large_cluster()
    chosen = [hurried(ledger, asks(8)) for _ in range(20)]
    known = asks(8)
    assert isinstance(known.request, Request)
    best = ranking.first(ledger, known.request, known, list(ledger.node_names()), "best-fit")
    assert chosen[-1] == best != chosen[0]
