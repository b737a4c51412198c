"""Fragments of nodes as live clusters have them: unequal GPUs, several models, pods of parts of several GPUs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.packing import fragments
from gpushare.core.facts.packing.fgd import Fgd
from gpushare.core.facts.packing.model import UNKNOWN, Ask, Mixture, PodType, View

MODELS = ("A", "B")
SIZES = (8000, 24000, 81920)
CPU = st.sampled_from([0, 1000, 4000, 9000])
ASKS = st.one_of(
    st.builds(Ask, CPU, st.just(0), st.just(0), st.just(0)),
    st.builds(Ask, CPU, st.just(0), st.integers(1, 3), st.sampled_from([0, 0, 500, 3000, 8000, 20000])),
)
RESTRICTED = st.sampled_from([None, None, None, frozenset({"A"}), frozenset({"B"}), frozenset({"C"})])
MIXTURES = st.lists(st.builds(PodType, ASKS, st.integers(1, 50), RESTRICTED), max_size=12).map(tuple).map(Mixture)


@st.composite
def views(draw: st.DrawFn) -> View:
    totals = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=5))
    free = [draw(st.sampled_from([0, 500, 1500, total // 2, total])) for total in totals]
    models = [draw(st.sampled_from(MODELS)) for _ in totals]
    return View(free, totals, models, draw(st.sampled_from([0, 500, 4000, 8999, 20000, UNKNOWN])))


def fragment(pods: Sequence[PodType], node: View, free: Sequence[int], cpu: int) -> int:
    """The sum over all pods of what each cannot use."""
    total = 0
    gpus = list(zip(free, node.totals, node.models, strict=True))
    for pod in pods:
        ask = pod.ask
        usable = [
            1000 * left // size
            for left, size, model in gpus
            if left >= (ask.units or size) and (pod.models is None or model in pod.models)
        ]
        fits = ask.gpus and cpu >= ask.cpu and len(usable) >= ask.gpus
        total += pod.count * (sum([1000 * left // size for left, size, _ in gpus]) - (sum(usable) if fits else 0))
    return total


@given(MIXTURES, views())
def test_the_fragment_is_what_the_pods_that_come_cannot_use(mixture: Mixture, node: View) -> None:
    scorer = Fgd(mixture)
    assert scorer.fragment(node) == fragment(scorer.pods, node, node.free, node.cpu)


@given(MIXTURES, views(), CPU, st.sampled_from([0, 500, 3000, 8000]))
def test_the_gpu_is_the_first_of_those_where_the_fragment_grows_least(
    mixture: Mixture, node: View, cpu: int, units: int
) -> None:
    scorer, ask = Fgd(mixture), Ask(cpu, 0, 1, units)
    keys = []
    for gpu, (free, total) in enumerate(zip(node.free, node.totals, strict=True)):
        if free >= (units or total):
            after = [left - (units or total) * (i == gpu) for i, left in enumerate(node.free)]
            keys.append((scorer.planned(ask, node, after), gpu))
            grown = fragment(scorer.pods, node, after, node.cpu - cpu) - scorer.fragment(node)
            if grown:
                assert -keys[-1][0] == fragments.points(-grown / scorer.count)
    assert scorer.one_gpu(ask, node) == min(keys, default=None)


@given(MIXTURES)
def test_kinds_that_are_looked_at_are_the_most_frequent(mixture: Mixture) -> None:
    pods = fragments.typical(mixture.pods)
    came, looked_at = sum([pod.count for pod in mixture.pods]), sum([pod.count for pod in pods])
    assert [pod.count for pod in pods] == sorted([pod.count for pod in pods], reverse=True)
    assert 100 * looked_at >= 95 * came
    assert not pods or 100 * (looked_at - pods[-1].count) < 95 * came


def test_pods_that_differ_in_memory_only_are_one_kind() -> None:
    pods = [PodType(Ask(1000, memory, 1, 500), 3) for memory in (1024, 2048)]
    assert fragments.typical(pods) == [PodType(Ask(1000, 0, 1, 500), 6)]


def test_what_is_kept_about_a_node_ends_with_the_mixture() -> None:
    node = View([500], [1000], ["A"], 8000)
    small, large = [Fgd(Mixture((PodType(Ask(1000, 0, 1, units), 1),))) for units in (400, 600)]
    assert (small.fragment(node), large.fragment(node), small.fragment(node)) == (0, 500, 0)


def test_a_gpu_counts_the_same_whatever_its_memory() -> None:
    pods = Mixture((PodType(Ask(1000, 0, 1, 0), 1),))
    assert Fgd(pods).fragment(View([40000], [80000], ["A"])) == Fgd(pods).fragment(View([8000], [16000], ["A"])) == 500


def test_without_pods_all_nodes_are_equal() -> None:
    scorer = Fgd(Mixture())
    nodes = [View([500, 1000], [1000, 1000], ["A", "A"], 8000), View([1000], [1000], ["A"], 1000)]
    assert len({scorer.planned(Ask(500, 0, 0, 0), node, node.free) for node in nodes}) == 1


def test_where_hardly_two_pods_ask_the_same_only_some_kinds_count() -> None:
    alike = [PodType(Ask(1, 0, 1, 500), 2)]
    made = Fgd(Mixture((*[PodType(Ask(cpu, 0, 1, 500), 1) for cpu in range(2, 2000)], *alike)))
    assert len(made.pods) == fragments.MOST_KINDS
    assert made.pods[0] == alike[0], "the commonest first"
