"""Every way out is true: on random clusters it is taken, and the ledger is asked whether the pod fits then.

The clusters have nominations, kept GPUs, unhealthy GPUs, unlocated pods, pods that are being deleted, init containers,
nodes that cool down, drain or count in another unit. A way out that promises too little (too small a shrink is the same
as none) would send somebody to do something in vain.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gpushare.core.explain import verdict
from gpushare.core.explain.report import Explanation, Way
from gpushare.core.facts.model import NodeFacts, PodFacts, Request
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.observed import REFUSED_BY_KUBELET
from gpushare.core.placement.fit import JUST_REFUSED, Question
from tests.support import builders
from tests.support.builders import bound, facts, pod

SEEDS, CLUSTERS = 4, 200  # of each


class Taken(NamedTuple):
    """A bound pod: what it asks, and the GPUs of each container. No GPUs: nobody knows them."""

    asks: PodFacts
    node: int
    gpus: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.asks.namespace}/{self.asks.name}"


class Cluster(NamedTuple):
    nodes: tuple[NodeFacts, ...]
    taken: tuple[Taken, ...]
    nominated: tuple[PodFacts, ...]
    kept: tuple[Kept, ...]
    waiting: PodFacts
    refused: tuple[tuple[PodFacts, str], ...] = ()  # by kubelet, a moment ago, on that node

    def ledger(self) -> Ledger:
        made = builders.ledger(*self.nodes)
        for refused, node in self.refused:
            made.observe(replace(refused, node=node), 0.0)
            made.observe(replace(refused, node=node, finished=True, failed_reason=REFUSED_BY_KUBELET), 0.0)
        for one in self.taken:
            where = self.nodes[one.node]
            assert isinstance(one.asks.request, Request)
            places = (one.gpus,) * len(one.asks.request.shares)
            made.observe(bound(one.asks, where, places) if one.gpus else replace(one.asks, node=where.name), 0.0)
        for waiting in (*self.nominated, self.waiting):
            made.observe(waiting, 0.0)
        for kept in self.kept:
            made.keep(kept)
        return made

    def fits(self, node: str | None) -> bool:
        """Now, or as soon as the node no longer cools down."""
        assert node is not None
        assert isinstance(self.waiting.request, Request)
        refusal = self.ledger().refusal(Question(self.waiting.request), node, self.waiting)
        return refusal is None or refusal == JUST_REFUSED

    def without(self, names: Sequence[str]) -> "Cluster":
        return self._replace(taken=tuple(one for one in self.taken if one.name not in names))

    def asking(self, **changes: Any) -> "Cluster":
        """Another pod in place of the one that waits, with another amount, or on another number of GPUs. Nothing is
        promised to that one."""
        request = self.waiting.request
        assert isinstance(request, Request)
        changed = replace(request, shares=(replace(request.shares[0], **changes),))
        waiting = replace(
            self.waiting, uid="uid-another", created="2026-11-16T12:00:00Z", nominated="", request=changed
        )
        return self._replace(waiting=waiting, kept=tuple(one for one in self.kept if one.pod.uid != self.waiting.uid))

    def healed(self, node: str | None, index: int | None) -> "Cluster":
        def heal(one: NodeFacts) -> NodeFacts:
            gpus = [replace(gpu, healthy=gpu.healthy or index in (None, gpu.index)) for gpu in one.gpus]
            return replace(one, gpus=tuple(gpus)) if one.name == node else one

        return self._replace(nodes=tuple(map(heal, self.nodes)))

    def freed(self, node: str | None, index: int | None, units: int) -> "Cluster | None":
        """With so many units less in use on one GPU, by smaller pods there; None if only others could do that."""
        left, taken = units, []
        for one in self.taken:
            request = one.asks.request
            assert isinstance(request, Request)
            share, elsewhere = request.shares[0], tuple(gpu for gpu in one.gpus if gpu != index)
            here = self.nodes[one.node].name == node and index in one.gpus
            if not here or not left or len(request.shares) > 1:
                taken.append(one)
            elif elsewhere:  # it keeps its other GPU
                left -= min(left, share.each)
                taken.append(_smaller(one, elsewhere, share.each))
            else:
                less = min(left, share.units)
                left -= less
                if less < share.units:
                    taken.append(_smaller(one, one.gpus, share.units - less))
        return None if left else self._replace(taken=tuple(taken))


def _smaller(one: Taken, gpus: tuple[int, ...], units: int) -> Taken:
    request = one.asks.request
    assert isinstance(request, Request)
    share = replace(request.shares[0], units=units, gpus=len(gpus))
    return one._replace(asks=replace(one.asks, request=replace(request, shares=(share,))), gpus=gpus)


def cluster(dice: random.Random) -> Cluster:
    """A small cluster with little free, and a pod that probably does not fit."""
    pin = dice.choice(["direct", "direct", "plugin", "aliyun"])
    how: dict[str, Any] = {"direct": pin == "direct"}
    nodes = [_node(dice, pin, f"n{number}") for number in range(dice.randint(1, 3))]
    taken = [_taken(dice, nodes, number, pin, how) for number in range(dice.randint(0, 9))]
    nominated = [
        pod(dice.randint(1, 8), name=f"nominated-{i}", nominated=dice.choice(nodes).name, priority=dice.randint(-1, 3),
            created=_created(dice), **how)
        for i in range(dice.choice([0, 0, 1, 2]))
    ]  # fmt: skip
    kept = [_kept(dice, nodes, number, how) for number in range(dice.choice([0, 0, 0, 1, 2]))]
    nominated_to = dice.choice(nodes).name if dice.random() < 0.1 else None
    waiting = _waiting(dice, pin, {**how, "nominated": nominated_to, "created": _created(dice)})
    assert isinstance(waiting.request, Request)
    if waiting.request.one_share and dice.random() < 0.1:
        where = dice.choice(nodes)
        kept.append(Kept(waiting, where.name, ((dice.choice(where.gpus).key,),), float(dice.randint(0, 2))))
    alike = replace(waiting, uid="uid-refused", nominated="")
    refused = [(alike, dice.choice(nodes).name)] if dice.random() < 0.1 else []
    return Cluster(tuple(nodes), tuple(taken), tuple(nominated), tuple(kept), waiting, tuple(refused))


def _created(dice: random.Random) -> str:
    return f"2026-11-15T12:00:0{dice.randint(0, 9)}Z"


def _node(dice: random.Random, pin: str, name: str) -> NodeFacts:
    sizes = [dice.randint(4, 12)] * 3 if pin == "aliyun" else [dice.randint(4, 12) for _ in range(3)]
    count = dice.randint(1, 3)
    unhealthy = [i for i in range(count) if dice.random() < 0.3]
    limit = dice.choice([0, 0, 0, 6]) if pin == "plugin" else 0
    unit, state = dice.choice(["MiB", "MiB", "MiB", "GiB"]), dice.choice(["ready"] * 9 + ["draining"])
    sells: dict[str, Any] = {}
    if pin == "direct":
        sells = {"slots": dice.randint(0, 3), "nvidia_whole": dice.random() < 0.8}
    sells |= {"name": name, "pin": pin, "unit": unit, "unhealthy": unhealthy, "limit": limit, "state": state}
    return facts(*sizes[:count], **sells)


def _taken(dice: random.Random, nodes: Sequence[NodeFacts], number: int, pin: str, how: dict[str, Any]) -> Taken:
    where = dice.randrange(len(nodes))
    gpus = nodes[where].gpus
    gpu = dice.randrange(len(gpus))
    about = {**how, "name": f"taken-{number}", "phase": "Running", "priority": dice.choice([-1, 0, 0, 1, 2])}
    about["terminating"] = dice.random() < 0.15
    shape = dice.random()
    if shape < 0.1:
        return Taken(pod(dice.randint(1, 3), **{**about, "direct": False}), where, ())
    if pin != "aliyun" and shape < 0.2:
        return Taken(pod(dice.randint(1, 4), init=[dice.randint(1, 4)], **about), where, (gpu,))
    if pin != "aliyun" and len(gpus) > 1 and shape < 0.4:
        return Taken(
            pod(2 * dice.randint(1, 3), split=2, **about), where, tuple(sorted(dice.sample(range(len(gpus)), 2)))
        )
    if nodes[where].slots and shape < 0.6:
        return Taken(pod(mps=1, slot_memory=dice.choice([None, "1Mi", "3Mi"]), **about), where, (gpu,))
    if nodes[where].nvidia_whole and shape < 0.65:
        return Taken(pod(nvidia=1, **about), where, (gpu,))
    return Taken(pod(dice.randint(1, gpus[gpu].total), **about), where, (gpu,))


def _kept(dice: random.Random, nodes: Sequence[NodeFacts], number: int, how: dict[str, Any]) -> Kept:
    where = dice.choice(nodes)
    gpu = dice.choice(where.gpus)
    waits = pod(dice.randint(1, gpu.total), name=f"kept-{number}", priority=dice.randint(-1, 3), **how)
    return Kept(waits, where.name, ((gpu.key,),), float(number))


def _waiting(dice: random.Random, pin: str, how: dict[str, Any]) -> PodFacts:
    about = {**how, "name": "waiting", "priority": dice.randint(0, 2)}
    shape = 0 if pin == "aliyun" else dice.randrange(16 if pin == "direct" else 11)
    if shape == 7:
        return pod(dice.randint(2, 8), dice.randint(2, 8), **about)
    if shape == 8:
        return pod(2 * dice.randint(2, 7), split=2, **about)
    if shape == 9:
        return pod(whole=dice.randint(1, 2), **about)
    if shape == 10:
        return pod(dice.randint(2, 8), init=[dice.randint(2, 8)], **about)
    if shape in (11, 12):
        return pod(mps=dice.randint(1, 2), slot_memory=dice.choice([None, "2Mi", "6Mi"]), **about)
    if shape == 13:
        return pod(nvidia=dice.randint(1, 2), **about)
    if shape > 13:
        return pod(dice.randint(2, 6), mps=1, nvidia=dice.randint(0, 1), slot_memory="2Mi", **about)
    return pod(dice.randint(3, 13), **about)


def _shrink(made: Cluster, way: Way, answer: Explanation) -> bool:
    request = made.waiting.request
    assert isinstance(request, Request)
    assert way.units is not None
    assert way.units < request.amount
    if answer.code == "TooLarge":  # once free
        made = made._replace(taken=(), nominated=(), kept=(), refused=())
    more = made.asking(units=way.units + 1)
    assert not any(more.fits(node.name) for node in made.nodes), f"more would fit: {made}"
    return made.asking(units=way.units).fits(way.node)


def _split(made: Cluster, way: Way, answer: Explanation) -> bool:
    if answer.verdict == "never":  # once free
        made = made._replace(taken=(), nominated=(), kept=())
    return made.asking(gpus=way.gpus).fits(way.node)


def _heal(made: Cluster, way: Way, _: Explanation) -> bool:
    return made.healed(way.node, way.gpu).fits(way.node)


def _end(made: Cluster, way: Way, _: Explanation) -> bool:
    return all(made.without([name]).fits(way.node) for name in way.pods or ())


def _gone(made: Cluster, way: Way, _: Explanation) -> bool:
    return made.without(way.pods or ()).fits(way.node)


def _free(made: Cluster, way: Way, _: Explanation) -> bool:
    then = made.freed(way.node, way.gpu, way.units or 0)
    return then is None or then.fits(way.node)


TRUE: dict[str, Callable[[Cluster, Way, Explanation], bool]] = {
    "shrink": _shrink, "split": _split, "heal": _heal, "wait": _gone, "end": _end, "evict": _gone, "free": _free
}  # fmt: skip


def test_the_most_it_could_ask_is_on_a_node_that_counts_in_another_unit() -> None:
    large = facts(9, name="large", unit="GiB")
    made = builders.ledger(facts(7, name="small"), large)
    made.observe(bound(pod(6), large, ((0,),)), 0.0)
    (shrink,) = [way for way in verdict.explain(made, pod(12)).ways if way.way == "shrink"]
    assert (shrink.node, shrink.units) == ("large", 9)


def test_another_pod_gets_nothing_of_what_is_kept_for_this_one() -> None:
    """Its turn comes before that of the other pod, which waits for the same GPU. A smaller pod in its place would have
    no turn."""
    waiting, other = pod(8, name="waiting"), pod(8, name="other")
    kept = tuple(Kept(one, "n", (("GPU-n-0",),), float(since)) for since, one in enumerate((waiting, other)))
    made = Cluster((facts(8),), (Taken(pod(2, name="a"), 0, (0,)),), (), kept, waiting)
    assert [way.way for way in verdict.explain(made.ledger(), waiting).ways] == ["end"]


def test_a_pod_is_not_to_ask_less_while_a_node_with_room_only_cools_down() -> None:
    nodes, waiting = (facts(11, name="kept"), facts(10, name="cools"), facts(4, name="small")), pod(9, name="waiting")
    kept = (Kept(pod(11, name="first"), "kept", (("GPU-kept-0",),), 0.0),)
    made = Cluster(nodes, (), (), kept, waiting, ((replace(waiting, uid="uid-refused"), "cools"),))
    assert [(way.way, way.node) for way in verdict.explain(made.ledger(), waiting).ways] == [("wait", "cools")]


def test_a_healed_gpu_that_goes_to_a_nominated_pod_is_no_way_out() -> None:
    """GPU 0 would come back, and the nominated pod would take it: it fills the fullest GPU that has room."""
    made = Cluster(
        (facts(8, 8, unhealthy=[0]),),
        (Taken(pod(4, name="a"), 0, (1,)),),
        (pod(8, name="first", nominated="n"),),
        (),
        pod(6, name="waiting"),
    )
    answer = verdict.explain(made.ledger(), made.waiting)
    assert answer.code == "NoHealthyGpu"
    assert not made.healed("n", 0).fits("n")
    assert [way.way for way in answer.ways if way.way == "heal"] == []


def test_the_size_of_an_unhealthy_gpu_is_no_amount_to_ask() -> None:
    made = builders.ledger(facts(16, 8, unhealthy=[0]))
    (shrink,) = [way for way in verdict.explain(made, pod(20)).ways if way.way == "shrink"]
    assert (shrink.gpu, shrink.units) == (1, 8)


def test_freed_memory_is_not_promised_where_a_nominated_pod_may_take_it() -> None:
    made = Cluster((facts(8),), (Taken(pod(6, name="a"), 0, (0,)),), (pod(2, name="first", nominated="n"),), (), pod(4))
    assert "free" not in [way.way for way in verdict.explain(made.ledger(), made.waiting).ways]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_way_out_is_true(seed: int) -> None:
    dice, taken = random.Random(seed), Counter[str]()
    for number in range(CLUSTERS):
        made = cluster(dice)
        answer = verdict.explain(made.ledger(), made.waiting)
        for way in answer.ways if answer.verdict != "fits" else ():
            assert TRUE[way.way](made, way, answer), f"cluster {number}: {msgspec.to_builtins(way)} for {made}"
            taken[way.way] += 1
    assert set(taken) == set(TRUE), "some way out was never said"
