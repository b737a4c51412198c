"""Whatever happened before, the node out of a kept order is the one that is found by asking every node."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.facts.packing.model import Ask, Choice, Mixture, PodType, View
from gpushare.core.facts.policies import POLICIES, Policy
from gpushare.core.facts.scoring.settings import Settings
from gpushare.core.facts.vitals import GpuVitals
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured
from gpushare.core.order.offer import Offer
from gpushare.core.scheduling import ranking
from tests.core.scheduling import straight
from tests.support import builders
from tests.support.builders import facts, pod

ORDERED = sorted([name for name, policy in POLICIES.items() if not policy.by_chance])
NODES = [f"n{i}" for i in range(9)]
SHAPES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2,), {}),
    ((3,), {}),
    ((5,), {}),
    ((3, 3), {}),
    ((4, 2, 2), {}),
    ((4,), {"split": 2}),
    ((), {"whole": 1}),
    ((), {"whole": 2}),
    ((2,), {"whole": 1}),
    ((2,), {"init": (4,)}),
    ((2,), {"sidecars": (2,), "init": (3,)}),
    ((), {"mps": 1}),
    ((), {"mps": 2, "slot_memory": "3Mi"}),
    ((2,), {"mps": 1}),
    ((4,), {}),
    ((5,), {}),
]
ASKED = st.tuples(
    st.sampled_from(SHAPES),
    st.sampled_from([True, True, True, False]),  # the admission policy saw it
    st.sampled_from([0, 0, 500, 3000]),  # CPU
    st.sampled_from([0, 0, 1, 2]),  # priority
    st.sampled_from([*[None] * 30, *NODES[:3]]),  # the only node it may use
)
SIZES = st.lists(st.sampled_from([4, 6, 8, 8]), min_size=1, max_size=4)
Draw = st.DataObject


def asking(asked: Any, **more: Any) -> PodFacts:
    (memory, kinds), direct, cpu, priority, only = asked
    made = pod(*memory, direct=direct, priority=priority, only=only, **kinds, **more)
    return msgspec.structs.replace(made, cpu=cpu, memory=cpu // 2)


class World:
    """A ledger to which everything happens that can."""

    def __init__(self) -> None:
        self.ledger, self.now, self.placed, self.policies = Ledger(), 1.0, list[PodFacts](), ORDERED

    def node(self, draw: Draw) -> None:
        name = draw.draw(st.sampled_from(NODES))
        sizes, slots = draw.draw(SIZES), draw.draw(st.sampled_from([0, 0, 2]))
        pin = draw.draw(st.sampled_from(["direct", "direct", "direct", "plugin"]))
        limit = draw.draw(st.sampled_from([0, 0, 0, 4])) if pin == "plugin" else 0
        unhealthy = draw.draw(st.sampled_from([(), (), (0,)]))
        self.ledger.set_node(facts(*sizes, name=name, pin=pin, limit=limit, slots=slots, unhealthy=unhealthy))

    def remove(self, draw: Draw) -> None:
        self.ledger.remove_node(draw.draw(st.sampled_from(NODES)))

    def place(self, draw: Draw) -> None:
        """As the extender does, as far as it gets."""
        who, policy = asking(draw.draw(ASKED)), draw.draw(st.sampled_from(self.policies))
        assert isinstance(who.request, Request)
        node = ranking.first(self.ledger, who.request, who, NODES, policy)
        if node is None or isinstance(self.ledger.assume(who, node, policy, self.now), Refusal):
            return
        self.placed.append(who)
        steps = draw.draw(st.integers(0, 2))
        if steps:
            places = self.ledger.reserve(who, node, policy)
            assert not isinstance(places, Refusal)
            where = self.ledger.facts(node)
            assert where is not None
            if steps == 2:
                self.ledger.confirm(builders.bound(who, where, places))

    def end(self, draw: Draw) -> None:
        if self.placed:
            self.ledger.forget(self.placed.pop(draw.draw(st.integers(0, len(self.placed) - 1))).uid)

    def kubelet_refuses(self, draw: Draw) -> None:
        bound = [who for who in self.placed if self.ledger.bound(who.uid) is not None]
        if bound:
            holding = self.ledger.bound(draw.draw(st.sampled_from(bound)).uid)
            assert holding is not None
            failed = {"finished": True, "phase": "Failed", "failed_reason": "UnexpectedAdmissionError"}
            self.ledger.observe(msgspec.structs.replace(holding.pod, **failed), self.now)

    def nominate(self, draw: Draw) -> None:
        node = draw.draw(st.sampled_from(NODES))
        who = asking(draw.draw(ASKED), nominated=node, name=f"nominated-{draw.draw(st.integers(0, 2))}")
        self.ledger.observe(who, self.now)

    def keep(self, draw: Draw) -> None:
        state = self.ledger.node(draw.draw(st.sampled_from(NODES)))
        if state is not None and state.facts is not None:
            who = pod(3, name=f"waits-{draw.draw(st.integers(0, 1))}", priority=1)
            self.ledger.keep(Kept(who, state.name, ((state.facts.gpus[0].key,),), 0.0))

    def keep_no_longer(self, draw: Draw) -> None:
        self.ledger.keep_no_longer(f"uid-waits-{draw.draw(st.integers(0, 1))}")

    def measure(self, draw: Draw) -> None:
        node = draw.draw(st.sampled_from(NODES))
        busy = draw.draw(st.integers(0, 100))
        figures = {f"GPU-{node}-{i}": GpuVitals(used_mib=i, utilization=busy) for i in range(3)}
        self.ledger.measure(node, Measured(self.now, figures))

    def offer(self, draw: Draw) -> None:
        self.ledger.offer(draw.draw(st.sampled_from(NODES)), draw.draw(st.sampled_from([1000, 8000])), 4000)

    def use(self, draw: Draw) -> None:
        who, node = f"cpu-{draw.draw(st.integers(0, 3))}", draw.draw(st.sampled_from(NODES))
        self.ledger.use(who, node, draw.draw(st.sampled_from([0, 500, 2000])), 100)

    def learn(self, draw: Draw) -> None:
        types = [PodType(Ask(1000, 10, 1, units), draw.draw(st.integers(1, 5))) for units in (2, 4)]
        self.ledger.learn(Mixture(tuple(types), cpu=9000, memory=9000))

    def admin(self, draw: Draw) -> None:
        self.ledger.apply(Settings(second_best=draw.draw(st.booleans())))

    def wait(self, draw: Draw) -> None:
        self.now += draw.draw(st.sampled_from([1.0, 20.0, 60.0]))
        self.ledger.expire(self.now)


HAPPENINGS = [
    World.node, World.remove, World.place, World.place, World.place, World.end, World.kubelet_refuses, World.nominate,
    World.keep, World.keep_no_longer, World.measure, World.offer, World.use, World.learn, World.admin, World.wait,
]  # fmt: skip


class ByMixture:
    """A policy whose keys depend on all that they may depend on."""

    def __init__(self, mixture: Mixture) -> None:
        self._wanted = sum(kind.count * kind.ask.units for kind in mixture.pods) % 7

    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        able = [gpu for gpu, free in enumerate(node.free) if free >= (ask.units or node.totals[gpu])]
        return Choice(self.planned(ask, node, node.free), able[-1]) if able else None

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        return (3 * sum(free) + 5 * len(node.held) + node.cpu // 500 + ask.cpu) % (11 + self._wanted)


@given(st.data())
@settings(max_examples=120)
def test_a_kept_order_names_the_nodes_that_are_found_by_asking_all(data: Draw) -> None:
    with pytest.MonkeyPatch.context() as patch:
        toy = Policy("toy", "a toy", False, packing=ByMixture)
        patch.setitem(POLICIES, "toy", toy)
        world, policies = World(), data.draw(st.sampled_from([["toy"], *[["toy", name] for name in ORDERED]]))
        for name in NODES[: data.draw(st.integers(2, 9))]:
            world.ledger.set_node(facts(*data.draw(SIZES), name=name))
            world.ledger.offer(name, 4000, 4000)
        # Two that have one order, but not the same priority.
        probes = [asking(data.draw(ASKED), uid=f"probe-{i}", name=f"probe-{i}") for i in range(2)]
        probes.append(msgspec.structs.replace(probes[0], uid="probe-2", name="probe-2", priority=2))
        for _ in range(data.draw(st.integers(1, 15))):
            data.draw(st.sampled_from(HAPPENINGS))(world, data)
            offered = data.draw(st.sampled_from([NODES, [*NODES, "nowhere"], NODES[:4], NODES[::-2], NODES[3:5]]))
            for who, policy in product(probes, policies):
                compare(world.ledger, who, offered, policy)


def compare(ledger: Ledger, who: PodFacts, offered: list[str], policy: str) -> None:
    assert isinstance(who.request, Request)
    expected = straight.best(ledger, who, offered, policy)
    assert ranking.best(ledger, who.request, who, offered, policy) == expected
    first = ranking.first(ledger, who.request, who, Offer(offered), policy)
    assert first == (expected[0][0] if expected else None)


@pytest.mark.parametrize("policy", ["binpack", "spread", "best-fit", "metric"])
@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_few_offered_nodes_at_the_end_of_a_long_order_are_found(policy: str, shape: tuple[int, ...]) -> None:
    nodes = [facts(8, 8, 4 + i % 5, name=f"n{i:03}") for i in range(600)]
    made, asked = builders.ledger(*nodes), pod(*shape)
    assert isinstance(asked.request, Request)
    everywhere = [node for _, node in straight.rows(made, asked, list(made.node_names()), policy)]
    for offered in (everywhere[-20:], everywhere[300::97], everywhere[-1:], everywhere[-400:], []):
        compare(made, asked, offered, policy)


def test_pods_without_gpus_have_an_order_of_policies_that_pack() -> None:
    made = builders.ledger(facts(8, name="a"), facts(8, name="b"), facts(8, name="c"))
    for node, cpu in (("a", 4000), ("b", 2000), ("c", 500)):
        made.offer(node, cpu, 1000)
    asked = msgspec.structs.replace(pod(1), request=None, cpu=1000)
    order = [
        ranking.first(made, None, asked, [node for node in "abc" if node not in gone], "best-fit") for gone in ("", "b")
    ]
    assert order == ["b", "a"], "the fullest that has enough"
    assert ranking.first(made, None, asked, ["c"], "best-fit") == "c", "the scheduler knows better what is left"
