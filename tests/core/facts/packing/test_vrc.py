"""`vrc`: a pod goes where what is left of the node loses the least value."""

from math import erf, exp, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.packing import vrc
from gpushare.core.facts.packing.model import UNKNOWN, Ask, GpuClass, Mixture, PodType, View
from gpushare.core.facts.packing.outlook import Outlook
from gpushare.core.facts.packing.vrc import Vrc

BIG, SMALL = 80, 24
MIXTURE = Mixture(
    pods=(
        PodType(Ask(4_000, 8_000, 1, 12), 40),
        PodType(Ask(2_000, 4_000, 1, 8), 30),
        PodType(Ask(3_000, 8_000, 1, 60), 5),
        PodType(Ask(9_000, 30_000, 1, 0), 20, frozenset({"A"})),
        PodType(Ask(60_000, 90_000, 8, 0), 2),
        PodType(Ask(16_000, 9_000, 0, 0), 10),
    ),
    gpus=(GpuClass("A", SMALL, 60), GpuClass("B", BIG, 20)),
    cpu=900_000,
    memory=5_000_000,
)

amounts = st.integers(0, 12).map(lambda tenth: tenth * 8_000)
gpus = st.lists(
    st.sampled_from([("A", SMALL), ("B", BIG)]).flatmap(lambda kind: st.tuples(st.just(kind), st.integers(0, kind[1]))),
    min_size=1,
    max_size=8,
)
nodes = st.builds(
    lambda gpus, cpu, memory: View(
        [free for _, free in gpus], [kind[1] for kind, _ in gpus], [kind[0] for kind, _ in gpus], cpu, memory
    ),
    gpus,
    amounts | st.just(UNKNOWN),
    amounts | st.just(UNKNOWN),
)
asks = st.builds(Ask, amounts, amounts, st.just(1), st.integers(0, BIG))
mixtures = st.sampled_from([
    Mixture(),
    MIXTURE,
    Mixture(MIXTURE.pods),
    Mixture((), MIXTURE.gpus),
    Mixture(MIXTURE.pods, MIXTURE.gpus),
    Mixture((PodType(Ask(0, 0, 1, 4), 3),), (GpuClass("A", SMALL, 1),)),
    Mixture((PodType(Ask(16_000, 9_000, 0, 0), 10),), MIXTURE.gpus, 900_000, 5_000_000),
    Mixture((PodType(Ask(1_000, 1_000, 1, 500), 10),), MIXTURE.gpus, 900_000, 5_000_000),
])  # fmt: skip


@given(mixtures, asks, nodes)
def test_a_node_is_refused_only_if_no_gpu_has_room(mixture: Mixture, ask: Ask, node: View) -> None:
    able = [gpu for gpu, free in enumerate(node.free) if free >= (ask.units or node.totals[gpu])]
    choice = Vrc(mixture).one_gpu(ask, node)
    assert choice is None if not able else choice is not None and choice.gpu in able


@given(mixtures, asks, nodes)
def test_the_key_of_a_gpu_is_that_of_the_same_plan_and_no_other_gpu_has_a_better_one(
    mixture: Mixture, ask: Ask, node: View
) -> None:
    scorer = Vrc(mixture)
    plans = {}
    for gpu, free in enumerate(node.free):
        need = ask.units or node.totals[gpu]
        if free >= need:
            plans[gpu] = scorer.planned(ask, node, [*node.free[:gpu], free - need, *node.free[gpu + 1 :]])
    choice = scorer.one_gpu(ask, node)
    if choice is not None:
        assert choice.key == pytest.approx(plans[choice.gpu], abs=10)
        assert choice.key == pytest.approx(min(plans.values()), abs=10)


@given(asks, nodes)
def test_keys_are_those_of_the_formula(ask: Ask, node: View) -> None:
    choice = Vrc(MIXTURE).one_gpu(ask, node)
    if choice is not None:
        free = list(node.free)
        free[choice.gpu] -= ask.units or node.totals[choice.gpu]
        assert choice.key == pytest.approx(-1e9 * _gain(ask, node, free, choice.gpu), abs=10)


def _gain(ask: Ask, node: View, free: list[int], gpu: int) -> float:
    """The same as the scorer's, step by step."""
    outlook, cpu = Outlook(MIXTURE), node.cpu - ask.cpu
    gain = _value(outlook, node, free, cpu, node.memory - ask.memory)
    gain -= _value(outlook, node, list(node.free), node.cpu, node.memory)
    part = 1 - free[gpu] / node.totals[gpu] - (1 - node.free[gpu] / node.totals[gpu])
    worth = outlook.worth(node.totals[gpu]).whole
    gain -= vrc.SOUGHT * part * worth * outlook.price(node.models[gpu], node.totals[gpu])
    left = zip(free, node.totals, strict=True)
    gain -= vrc.EMPTIER * sum([units / total * outlook.worth(total).whole for units, total in left])
    tight = min(max(outlook.cpu_load - vrc.TIGHT, 0.0), vrc.TIGHTEST)
    return gain - tight * cpu / outlook.cpu_of_cluster if cpu < UNKNOWN / 2 else gain


def _value(outlook: Outlook, node: View, free: list[int], cpu: int, memory: int) -> float:
    idle = sum([outlook.worth(total)[left] for left, total in zip(free, node.totals, strict=True)])
    if idle <= 0:
        return 0.0
    need, deviation = vrc.NEEDED * outlook.cpu, vrc.UNCERTAIN * outlook.spread * sqrt(idle)
    lack, z = need * idle - cpu, (need * idle - cpu) / deviation
    if abs(z) < 4:
        lack = deviation * (exp(-z * z / 2) / sqrt(2 * pi) + z * (1 + erf(z / sqrt(2))) / 2)
    need_of_memory = vrc.NEEDED * outlook.memory
    lack_of_memory = max(need_of_memory * idle - memory, 0.0)
    whole = sum([left == total for left, total in zip(free, node.totals, strict=True)])
    together = outlook.together(node.models[0], node.totals[0], whole).weight(cpu)
    return idle - vrc.SHORTAGE * (max(lack, 0) / need + lack_of_memory / need_of_memory) + vrc.TOGETHER * together


@given(st.integers(0, SMALL - 1))
def test_more_left_is_never_worth_less_and_a_whole_gpu_is_worth_its_part_of_all_memory(units: int) -> None:
    worth = Outlook(MIXTURE).worth(SMALL)
    assert 0 <= worth[units] <= worth[units + 1] <= worth[SMALL]
    assert worth[SMALL] == pytest.approx(SMALL / ((60 * SMALL + 20 * BIG) / 80))


def test_a_share_goes_where_another_common_share_still_fits() -> None:
    scorer = Vrc(MIXTURE)
    beside_its_like = View([12, SMALL], [SMALL] * 2, ["A"] * 2)
    fuller = View([SMALL, 14], [SMALL] * 2, ["A"] * 2)
    ask = Ask(4_000, 8_000, 1, 12)
    first, second = scorer.one_gpu(ask, beside_its_like), scorer.one_gpu(ask, fuller)
    assert first is not None
    assert second is not None
    assert (first.gpu, second.gpu) == (0, 1)
    assert first.key < second.key


def test_a_pod_that_may_go_anywhere_leaves_gpus_that_others_need_alone() -> None:
    pods = (PodType(Ask(0, 0, 1, 0), 50), PodType(Ask(0, 0, 1, 0), 50, frozenset({"A"})))
    scorer = Vrc(Mixture(pods, (GpuClass("A", 10, 50), GpuClass("B", 10, 50))))
    sought, other = [scorer.one_gpu(Ask(0, 0, 1, 0), View([10], [10], [model])) for model in "AB"]
    assert sought is not None
    assert other is not None
    assert other.key < sought.key


def test_before_anybody_asks_for_much_the_largest_gpus_are_left_alone() -> None:
    gpus = (GpuClass("A", SMALL, 4), GpuClass("B", BIG, 2))
    for pods in ((), (PodType(Ask(0, 0, 1, 4), 5),)):
        scorer = Vrc(Mixture(pods, gpus))
        small, large = (
            scorer.one_gpu(Ask(0, 0, 1, 4), View([SMALL] * 4, [SMALL] * 4, ["A"] * 4)),
            scorer.one_gpu(Ask(0, 0, 1, 4), View([BIG] * 2, [BIG] * 2, ["B"] * 2)),
        )
        assert small is not None
        assert large is not None
        assert small.key < large.key


def test_gpus_have_a_price_by_their_size_as_far_as_pods_need_that_size() -> None:
    gpus = (GpuClass("A", SMALL, 60), GpuClass("B", BIG, 20))
    many = 100_000
    small, large = PodType(Ask(0, 0, 1, 4), many), PodType(Ask(0, 0, 1, SMALL + 1), many)
    assert Outlook(Mixture((small,), gpus)).price("B", BIG) == pytest.approx(0.0, abs=0.01)
    dear, cheap = [Outlook(Mixture((small, large), gpus)).price(gpu.model, gpu.total) for gpu in reversed(gpus)]
    assert cheap == 0.0
    assert dear == pytest.approx((SMALL + 1) / (SMALL + 5) * 80 / 20, rel=0.01)


def test_a_pod_leaves_cpu_where_idle_gpus_need_it() -> None:
    scorer = Vrc(MIXTURE)
    needs_it, has_more = (
        View([SMALL] * 2, [SMALL] * 2, ["A"] * 2, 9_000),
        View([SMALL] * 2, [SMALL] * 2, ["A"] * 2, 90_000),
    )
    without_gpus = Ask(4_000, 0, 0, 0)
    assert scorer.planned(without_gpus, has_more, has_more.free) < scorer.planned(without_gpus, needs_it, needs_it.free)


def test_of_two_nodes_with_as_much_in_use_the_smaller_one_is_taken() -> None:
    scorer, ask = Vrc(Mixture()), Ask(0, 0, 1, 0)
    small, large = [scorer.one_gpu(ask, View([10] * idle, [10] * idle, ["A"] * idle)) for idle in (2, 8)]
    assert small is not None
    assert large is not None
    assert small.key < large.key


def test_what_is_kept_in_a_view_is_forgotten_with_another_mixture() -> None:
    node, ask = View([14, SMALL], [SMALL] * 2, ["A"] * 2, 9_000), Ask(4_000, 8_000, 1, 12)
    before = Vrc(MIXTURE).one_gpu(ask, node)
    after = Vrc(Mixture(MIXTURE.pods[1:], MIXTURE.gpus, MIXTURE.cpu, MIXTURE.memory)).one_gpu(ask, node)
    anew = Vrc(Mixture(MIXTURE.pods[1:], MIXTURE.gpus, MIXTURE.cpu, MIXTURE.memory)).one_gpu(
        ask, View([14, SMALL], [SMALL] * 2, ["A"] * 2, 9_000)
    )
    assert after == anew != before
