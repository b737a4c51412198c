"""Which pods come, as policies that pack learn it."""

from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Rules
from gpushare.core.facts.objects import Expression, Term
from gpushare.core.facts.packing.model import Ask, GpuClass, PodType
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import mix
from gpushare.core.scheduling.mix import Mix
from gpushare.core.scheduling.reach import NodesByRules, Reach

T4, A100 = "T4", "A100"
SMALL, LARGE, NO_GPU = Ask(1000, 2048, 1, 4000), Ask(8000, 65536, 1, 0), Ask(500, 512, 0, 0)
ONLY_A100 = Rules(selector=(("gpu", A100),))
BY_AFFINITY = Rules(terms=(Term(match_expressions=(Expression("gpu", "In", (A100,)),)),))


def test_a_pod_counts_once_however_often_it_is_seen() -> None:
    pods = Mix()
    for uid in ("a", "b", "a", "a"):
        pods.add(uid, SMALL, None)
    assert pods.mixture(Ledger()).pods == (PodType(SMALL, 2),)


def test_a_pod_that_is_gone_has_come_all_the_same() -> None:
    pods = Mix()
    pods.add("a", SMALL, None)
    pods.gone("a")
    assert pods.mixture(Ledger()).pods == (PodType(SMALL, 1),)


def test_policies_learn_at_the_first_pod_and_then_more_and_more_rarely() -> None:
    pods, points = Mix(), []
    for count in range(1, 1000):
        pods.add(str(count), SMALL, None)
        if pods.due():
            points.append(count)
            pods.learned()
    assert points == [1, 11, 24, 42, 66, 99, 143, 203, 284, 393, 540, 739]


def test_many_pods_at_once_are_one_refresh() -> None:
    pods = Mix()
    for count in range(1000):
        pods.add(str(count), SMALL, None)
    pods.learned()
    assert not pods.due()


def test_a_mixture_that_nobody_learns_puts_off_nothing() -> None:
    pods = Mix()
    pods.add("a", SMALL, None)
    pods.mixture(Ledger())
    assert pods.due()


def test_a_selector_or_an_affinity_becomes_the_models_of_the_nodes_that_it_allows() -> None:
    ledger, reach = cluster()
    pods = Mix()
    pods.add("a", SMALL, ONLY_A100)
    pods.add("b", SMALL, BY_AFFINITY)
    pods.add("c", SMALL, None)
    pods.add("d", SMALL, Rules(selector=(("zone", "1"),)))
    assert pods.mixture(ledger, reach).pods == (PodType(SMALL, 2), PodType(SMALL, 2, frozenset({A100})))


def test_pods_that_no_node_takes_are_not_expected() -> None:
    ledger, reach = cluster()
    pods = Mix()
    pods.add("a", SMALL, Rules(selector=(("gpu", "none such"),)))
    assert pods.mixture(ledger, reach).pods == ()


def test_rules_of_pods_without_gpus_do_not_matter() -> None:
    ledger, reach = cluster()
    pods = Mix()
    pods.add("a", NO_GPU, ONLY_A100)
    assert pods.mixture(ledger, reach).pods == (PodType(NO_GPU, 1),)


def test_what_the_cluster_has_comes_from_its_nodes() -> None:
    ledger, reach = cluster()
    ledger.offer("a", 96_000, 700_000)
    ledger.offer("b", 128_000, 900_000)
    learned = Mix().mixture(ledger, reach)
    assert learned.gpus == (GpuClass(A100, 81920, 8), GpuClass(T4, 15360, 2))
    assert (learned.cpu, learned.memory) == (224_000, 1_600_000)


def test_what_came_long_ago_fades() -> None:
    pods = Mix()
    for count in range(4 * mix.FEWEST):
        pods.add(f"old {count}", LARGE, None)
        pods.gone(f"old {count}")
    for count in range(3 * mix.FEWEST):
        pods.add(f"new {count}", SMALL, None)
        pods.gone(f"new {count}")
    small, large = pods.mixture(Ledger()).pods[::-1]
    assert small.ask == SMALL
    assert small.count > large.count


def test_pods_that_are_there_never_fade() -> None:
    pods = Mix()
    for count in range(6 * mix.FEWEST):
        pods.add(str(count), SMALL, None)
    assert pods.mixture(Ledger()).pods == (PodType(SMALL, 6 * mix.FEWEST),)


def test_of_very_many_sorts_those_with_most_demand_are_learned() -> None:
    pods = Mix()
    for count in range(mix.MOST_SORTS + 10):
        pods.add(str(count), Ask(count, 1, 1, 1), None)
    pods.add("again", Ask(mix.MOST_SORTS + 9, 1, 1, 1), None)
    learned = pods.mixture(Ledger()).pods
    assert len(learned) == mix.MOST_SORTS
    assert learned[-1] == PodType(Ask(mix.MOST_SORTS + 9, 1, 1, 1), 2)


@given(st.permutations([(str(i), [SMALL, LARGE, NO_GPU][i % 3], [None, ONLY_A100][i % 2]) for i in range(12)]))
def test_a_restart_learns_the_same_in_whatever_order_pods_are_listed(
    listed: list[tuple[str, Ask, Rules | None]],
) -> None:
    ledger, reach = cluster()
    before, after = Mix(), Mix()
    for uid, ask, rules in sorted(listed, key=lambda pod: pod[0]):
        before.add(uid, ask, rules)
    for uid, ask, rules in listed:
        after.add(uid, ask, rules)
    assert before.mixture(ledger, reach) == after.mixture(ledger, reach)


def cluster() -> tuple[Ledger, Reach]:
    """A node with eight A100, and one with two T4, which is in zone 1 like the other."""
    ledger, nodes = Ledger(), NodesByRules()
    for name, model, total, count in (("a", A100, 81920, 8), ("b", T4, 15360, 2)):
        gpus = tuple([Gpu(i, f"GPU-{name}-{i}", total, model=model) for i in range(count)])
        ledger.set_node(NodeFacts(name, "MiB", Pin.DIRECT, gpus))
        nodes.set_node(name, NodeRules(name, {"gpu": model, "zone": "1"}, (), False))
    return ledger, Reach(nodes.allowed, nodes.open_to, nodes.reserved)
