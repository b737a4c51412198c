"""Policies that give points: what GPUs do decides, a decision counts at once, and nothing outdated is kept."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Needs, PodFacts, Refusal, Request
from gpushare.core.facts.objects import Affinity, Expression, NodeAffinity, PreferredTerm, Term
from gpushare.core.facts.scoring import node_score
from gpushare.core.facts.scoring.load import Terms
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.scoring.settings import NEUTRAL, Settings
from gpushare.core.facts.vitals import GpuVitals
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling import ranking, scored
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import NodesByRules
from tests.support import builders
from tests.support.builders import facts, pod

IDLE = {"used_mib": 0, "utilization": 0, "temperature": 35, "temperature_limit": 90, "power_watts": 30,
        "power_limit_watts": 300}  # fmt: skip
BUSY = {**IDLE, "used_mib": 6000, "utilization": 95, "temperature": 80, "power_watts": 290}


def cluster(policy: str = "metric", *, slots: int = 10, **nodes: int) -> Life:
    """Nodes with so many GPUs of 8000 MiB."""
    ledger = builders.ledger(*(facts(*[8000] * gpus, name=name, slots=slots) for name, gpus in nodes.items()))
    return Life(ledger, policy=policy)


def show(life: Life, node: str, *gpus: dict[str, Any], at: float = 1.0) -> None:
    uuids = [f"GPU-{node}-{i}" for i in range(len(gpus))]
    figures = {uuid: GpuVitals(uuid=uuid, **figure) for uuid, figure in zip(uuids, gpus, strict=True)}
    life.ledger.measure(node, Measured(at, figures))


def place(life: Life, waiting: PodFacts, now: float = 2.0) -> tuple[str, tuple[int, ...]]:
    """The node and the GPUs that it gets."""
    (node,) = life.choose(waiting, list(life.ledger.node_names()), now).fits
    assert isinstance(waiting.request, Request)
    reservation = life.reserve(waiting, waiting.request, node, extender="", nanoseconds=0)
    assert not isinstance(reservation, Refusal)
    life.confirm(reservation)
    holding = life.ledger.holding(waiting.uid)
    assert holding is not None
    return node, tuple(charge.gpu for charge in holding.charges or ())


@pytest.mark.parametrize("policy", ["metric", "keti"])
@pytest.mark.parametrize("asked", [{"mps": 1}, {"whole": 1}])
def test_the_gpu_that_does_less_gets_the_pod(policy: str, asked: dict[str, Any]) -> None:
    life = cluster(policy, a=2, b=2)
    show(life, "a", BUSY, BUSY)
    show(life, "b", BUSY, IDLE)
    assert place(life, pod(**asked)) == ("b", (1,))
    assert place(cluster(policy, a=1), pod(100)) == ("a", (0,))


def test_raised_load_moves_the_next_pod() -> None:
    life = cluster(a=2)
    show(life, "a", IDLE, IDLE)
    assert place(life, pod(100)) == ("a", (0,))
    show(life, "a", BUSY, IDLE, at=3.0)
    assert place(life, pod(100), 4.0) == ("a", (1,))


def test_figures_that_became_unknown_are_not_idle() -> None:
    life = cluster(a=1, b=1)
    show(life, "a", IDLE)
    show(life, "b", IDLE)
    life.ledger.measure("a", None)
    assert place(life, pod(100))[0] == "b"


def test_unknown_is_not_worse_than_busy_and_pods_are_placed_without_any_figures() -> None:
    life = cluster(a=1, b=1)
    show(life, "a", BUSY)
    assert place(life, pod(100))[0] == "b"
    assert place(cluster(a=3), pod(mps=2, slot_memory="1Gi")) == ("a", (0, 1))


def test_twenty_pods_within_one_interval_are_placed_as_if_each_had_been_measured() -> None:
    dice = random.Random(7)
    start = [{**IDLE, "used_mib": dice.randrange(4000), "utilization": dice.randrange(60)} for _ in range(8)]
    lags, follows = (cluster(a=4, b=4) for _ in range(2))
    using = {("a", i): dict(start[i]) for i in range(4)} | {("b", i): dict(start[4 + i]) for i in range(4)}
    for life in (lags, follows):
        show(life, "a", *start[:4])
        show(life, "b", *start[4:])
    placed = []
    for number in range(20):
        now = 2.0 + number
        waiting = pod(mps=1, name=f"p{number}")
        node, (gpu,) = place(lags, waiting, now)
        assert place(follows, waiting, now) == (node, (gpu,))
        placed.append((node, gpu))
        using[node, gpu]["used_mib"] += 800  # the tenth part of a GPU
        using[node, gpu]["utilization"] = min(using[node, gpu]["utilization"] + 10, 100)
        for name in "ab":
            show(follows, name, *(using[name, i] for i in range(4)), at=now + 0.5)
    assert len(set(placed)) == 8


@pytest.mark.parametrize("policy", ["metric", "keti"])
@pytest.mark.parametrize("asked", [{"mps": 1}, {"split": 2}])
def test_a_gpu_that_is_kept_for_another_pod_brings_its_node_no_points(policy: str, asked: dict[str, Any]) -> None:
    """It stands idle, and so it would draw pods to the busy GPUs beside it."""
    life = cluster(policy, a=3, b=2)
    show(life, "a", IDLE, BUSY, BUSY)
    show(life, "b", *[{**IDLE, "used_mib": 4000, "utilization": 40}] * 2)
    waiting = pod(*([200] if "split" in asked else []), **asked)
    kept_for = pod(8000, name="large")
    life.ledger.keep(Kept(kept_for, "a", (("GPU-a-0",),), 0.0))
    assert place(life, waiting)[0] == "b"
    assert place(life, kept_for, 3.0) == ("a", (0,))


def test_binpack_fills_gpus_in_use_and_spread_the_others_as_soon_as_it_is_said() -> None:
    life = cluster(a=2)
    show(life, "a", IDLE, IDLE)
    assert place(life, pod(100, name="first")) == ("a", (0,))
    life.apply(Settings(prefer="binpack"))
    assert place(life, pod(100, name="second")) == ("a", (0,))
    life.apply(NEUTRAL)
    assert place(life, pod(100, name="third")) == ("a", (1,))


@pytest.mark.parametrize(
    ("said", "order"),
    [
        (Settings(), ["a", "b", "c"]),
        (Settings(lowest_first=True), ["c", "b", "a"]),
        (Settings(second_best=True), ["b", "a", "c"]),
        (Settings(prefers_many_gpus=True), ["b", "a", "c"]),
    ],
)
def test_an_admin_may_want_another_node_than_the_best(said: Settings, order: list[str]) -> None:
    life = cluster(a=1, b=2, c=1)
    show(life, "a", IDLE)
    show(life, "b", *[{**IDLE, "utilization": 20}] * 2)
    show(life, "c", BUSY)
    life.apply(said)
    waiting = pod(100)
    assert isinstance(waiting.request, Request)
    nodes = ranking.best(life.ledger, waiting.request, waiting, ["c", "b", "a"], "metric")
    assert [node for node, _ in nodes] == order
    assert len({score for _, score in nodes[:2]}) == 2
    assert ranking.first(life.ledger, waiting.request, waiting, ["c", "b", "a"], "metric") == order[0]
    assert life.choose(waiting, ["a"], 2.0).fits == ["a"]


def test_those_that_go_by_what_is_free_do_not_care() -> None:
    life = cluster("binpack", a=1, b=1)
    life.apply(Settings(second_best=True, lowest_first=True))
    show(life, "a", BUSY)
    place(life, pod(100, name="x"))
    assert place(life, pod(100, name="y"))[0] == "a"


def test_the_points_of_a_node_count_with_their_weight() -> None:
    life = cluster("keti", a=1, b=1)
    life.node_points = NodePoints(lambda needs, *_: {"a": 10, "b": 90} if needs.amounts[0] else {}, lambda *_: ())
    show(life, "a", IDLE)
    show(life, "b", {**IDLE, "used_mib": 800})
    api = builders.api_pod(100, containers=[builders.container("x", 100)])
    waiting = life.facts(api, None)
    assert waiting.needs == Needs()
    assert life.choose(waiting, ["a", "b"], 2.0).fits == ["a"]
    api.spec.containers[0].resources.requests = {"cpu": "250m"}  # type: ignore[index, union-attr]
    assert life.choose(life.facts(api, None), ["a", "b"], 2.0).fits == ["b"]
    life.apply(Settings(node_weight=0.0, gpu_weight=1.0))
    assert life.facts(api, None).needs is None
    assert life.choose(life.facts(api, None), ["a", "b"], 2.0).fits == ["a"]


def test_equal_needs_of_many_pods_are_kept_once() -> None:
    """Preferred node affinity may be long, and thousands of pods of one controller may wait."""
    life, condition = cluster("keti", a=1), Expression("disk", "In", ("ssd",))
    made = [builders.api_pod(100) for _ in range(2)]
    for one in made:
        term = PreferredTerm(1, Term((condition,)))
        one.spec.affinity = Affinity(NodeAffinity(preferred=(term,)))
    first, second = (life.facts(one, None).needs for one in made)
    assert first is second
    assert first is not None
    assert [term.weight for term in first.preferred] == [1]


def test_the_points_of_nodes_that_a_call_has_no_time_for_are_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod may have many rules, and a cluster many nodes: to compare all of them at once would stop everything."""
    names = [f"n{i}" for i in range(40)]
    life, rules, compared = cluster("keti", **dict.fromkeys(names, 1)), NodesByRules(), list[str]()
    for name in names:
        rules.set_node(name, NodeRules(name, {}, (), False))
    terms = node_score.terms

    def counted(needs: Needs, node: NodeRules) -> Terms:
        compared.append(node.name)
        return terms(needs, node)

    monkeypatch.setattr(node_score, "terms", counted)
    monkeypatch.setattr(scored, "CALL_LOOKS", 2000)
    conditions = [Expression(f"k{i}", "NotIn", ("x",)) for i in range(100)]
    needs = Needs((100, 0, 0), (PreferredTerm(1, Term(tuple(conditions))),), ())
    waiting = msgspec.structs.replace(pod(100), needs=needs)
    assert isinstance(waiting.request, Request)
    for seen in (9, 18, 27, 36, 40, 40):
        best = ranking.first(life.ledger, waiting.request, waiting, names, "keti", Budget(2000), rules.points)
        assert (best in compared, len(compared)) == (True, seen)
    rules.set_node("n3", NodeRules("n3", {"new": "label"}, (), False))
    ranking.first(life.ledger, waiting.request, waiting, names, "keti", Budget(2000), rules.points)
    assert compared[40:] == ["n3"]


def linked() -> Life:
    """Four GPUs, the last two linked."""
    made = facts(8000, 8000, 8000, 8000, name="a", slots=10)
    gpus = list(made.gpus)
    gpus[2] = msgspec.structs.replace(gpus[2], links=((gpus[3].uuid, 4),))
    gpus[3] = msgspec.structs.replace(gpus[3], links=((gpus[2].uuid, 4),))
    life = Life(builders.ledger(msgspec.structs.replace(made, gpus=tuple(gpus))), policy="metric")
    show(life, "a", *[IDLE] * 4)
    return life


def test_a_pod_of_two_gpus_gets_linked_ones_if_links_are_worth_something() -> None:
    assert place(linked(), pod(mps=2)) == ("a", (0, 1))
    life = linked()
    life.apply(Settings(nvlink_percent=10))
    assert place(life, pod(mps=2)) == ("a", (2, 3))
    assert place(life, pod(whole=1)) == ("a", (0,))


def test_a_pod_of_one_gpu_leaves_linked_ones_to_others_if_an_admin_says_so() -> None:
    life = linked()
    show(life, "a", {**IDLE, "utilization": 30}, {**IDLE, "utilization": 30}, IDLE, IDLE)
    assert place(life, pod(mps=1, name="x")) == ("a", (2,))
    life.apply(Settings(avoids_nvlink=True))
    assert place(life, pod(mps=1, name="y")) == ("a", (0,))


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_what_is_kept_equals_what_is_found_anew(seed: int) -> None:
    """Changes of all sorts, and after each the same choice as that of a ledger that knows nothing kept."""
    dice = random.Random(seed)
    policy = dice.choice(["keti", "metric"])
    life = cluster(policy, a=2, b=3, c=1)
    for step in range(12):
        deed = dice.randrange(4)
        if deed == 0:
            figures = [{**IDLE, "used_mib": dice.randrange(8000), "utilization": dice.randrange(100)} for _ in "123"]
            name = dice.choice("abc")
            show(life, name, *figures[: {"a": 2, "b": 3, "c": 1}[name]], at=float(step))
        elif deed == 1:
            prefer: Any = dice.choice(["spread", "binpack"])
            life.apply(Settings(prefer=prefer, lowest_first=dice.random() < 0.3))
        elif deed == 2:
            life.ledger.measure(dice.choice("abc"), None)
        asked: dict[str, Any] = dice.choice([{"mps": 1}, {"mps": 2}, {"whole": 1}, {"split": 2}])
        waiting = pod(*([200] if "split" in asked else []), name=f"p{step}", **asked)
        assert isinstance(waiting.request, Request)
        names = list("abc")
        anew = Life(_copied(life.ledger), policy=policy)
        anew.apply(life.settings)
        fits = life.choose(waiting, names, float(step)).fits
        assert fits == anew.choose(waiting, names, float(step)).fits
        if fits and dice.random() < 0.8:
            place(life, waiting, float(step))
        else:
            life.forget(waiting.uid)


def _copied(ledger: Ledger) -> Ledger:
    made = Ledger()
    for state in ledger.nodes():
        assert state.facts is not None
        made.set_node(state.facts)
        made.measure(state.name, state.measured)
    for holding in ledger.holdings():
        made.observe(holding.pod, 0.0)
        copy = made.holding(holding.pod.uid)
        if copy is not None:
            copy.since = holding.since
    return made
