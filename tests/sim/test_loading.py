"""Pods come until the cluster is more than full: what a replay promises, for every policy that can be replayed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.cli.traces.replaying import KNOWN
from gpushare.core.facts.model import Request
from gpushare.sim import arrivals, loading
from gpushare.sim.cluster import Cluster, Pods
from gpushare.sim.learning import Learner
from gpushare.sim.results import Points, Run, class_of
from gpushare.sim.trace import Gpu, Node, Pod, Trace
from tests.sim import small

TRACE = small.trace()


def replayed(policy: str, trace: Trace = TRACE, seed: int = 3, load: float = 1.3) -> Run:
    order, ranks = arrivals.drawn(trace, seed, load)
    return loading.replay(trace, policy, order, ranks, load)


@pytest.mark.parametrize("policy", KNOWN)
def test_the_same_seed_gives_the_same_result(policy: str) -> None:
    assert replayed(policy) == replayed(policy)


@pytest.mark.parametrize("policy", KNOWN)
def test_nothing_is_given_out_twice_and_every_pod_has_a_node_that_it_may_use(policy: str) -> None:
    order, ranks = arrivals.drawn(TRACE, 5, 1.3)
    cluster, pods = Cluster(TRACE.nodes, ranks, policy), Pods()
    nodes = {f"{rank:02}-{node.name}": node for node, rank in zip(TRACE.nodes, ranks, strict=True)}
    learner = Learner(cluster)
    on: dict[str, list[Pod]] = {name: [] for name in nodes}
    for number, position in enumerate(order):
        pod = TRACE.pods[position]
        learner.came(facts := pods.facts(pod, str(number)))
        place = cluster.place(facts)
        if place is not None:
            on[place].append(pod)
            assert pod.may_use(nodes[place])
    for name, node in nodes.items():
        view = cluster.view(name)
        assert sum([pod.cpu_milli for pod in on[name]]) == node.cpu_milli - view.cpu
        assert sum([pod.memory_mib for pod in on[name]]) == node.memory_mib - view.memory
        held = sum([pod.gpus * (pod.gpu_memory_mib or 1000) for pod in on[name]])
        assert held == sum(view.totals) - sum(view.free)
        assert all(0 <= free <= 1000 for free in view.free)
    free = sum([sum(cluster.view(name).free) for name in nodes])
    assert cluster.held == TRACE.capacity - free


@pytest.mark.parametrize("policy", KNOWN)
def test_no_pod_is_refused_while_a_node_has_room(policy: str) -> None:
    order, ranks = arrivals.drawn(TRACE, 6, 1.3)
    cluster, pods = Cluster(TRACE.nodes, ranks, policy), Pods()
    for number, position in enumerate(order):
        facts = pods.facts(TRACE.pods[position], str(number))
        room = cluster.could_take(cluster.names, facts)
        assert (cluster.place(facts) is not None) == room


def test_a_replay_counts_what_found_no_place_by_class() -> None:
    run = replayed("binpack", load=2.0)
    assert run.pods > len(TRACE.pods)
    assert set(run.rejected) <= {class_of(pod) for pod in TRACE.pods}
    assert sum(run.rejected.values()) > 0
    assert run.points[-1].load <= 200
    assert all(point.allocated <= 100 for point in run.points)


def test_until_the_cluster_is_full_all_that_comes_is_given_out() -> None:
    run = replayed("best-fit")
    assert [point for point in run.points if point.load < 50 and abs(point.allocated - point.load) > 1] == []


def test_equal_nodes_are_taken_by_rank() -> None:
    node = Node("n", 1000, 1000, (Gpu(1000, "T4"),))
    nodes = tuple([Node(f"n-{i}", node.cpu_milli, node.memory_mib, node.gpus) for i in range(12)])
    ranks = [11, 3, 7, 0, 1, 2, 4, 5, 6, 8, 9, 10]
    cluster, pods = Cluster(nodes, ranks, "best-fit"), Pods()
    placed = [cluster.place(pods.facts(Pod(f"p-{i}", 1000, 1000, 1), str(i))) for i in range(12)]
    assert placed == [f"{rank:02}-n-{ranks.index(rank)}" for rank in range(12)]


def test_whole_gpus_of_unequal_size_count_with_their_own_size() -> None:
    trace = Trace((Node("n", 9000, 9000, (Gpu(16000, "T4"), Gpu(80000, "H100"))),), (Pod("p", 1, 1, 1),))
    cluster = Cluster(trace.nodes, (0,), "binpack")
    cluster.place(Pods().facts(trace.pods[0], "1"))
    assert cluster.held in (16000, 80000)


def test_a_pod_that_ends_leaves_nothing_behind() -> None:
    cluster, pods = Cluster(TRACE.nodes, range(len(TRACE.nodes)), "vrc"), Pods()
    before = [(cluster.view(name).free, cluster.view(name).cpu) for name in cluster.names]
    all_facts = [pods.facts(pod, str(number)) for number, pod in enumerate(TRACE.pods)]
    placed = [facts for facts in all_facts if cluster.place(facts) is not None]
    assert any(isinstance(facts.request, Request) for facts in placed)
    for facts in placed:
        cluster.end(facts)
    assert cluster.held == 0
    assert [(cluster.view(name).free, cluster.view(name).cpu) for name in cluster.names] == before


def test_arrivals_are_all_pods_first_and_stop_at_the_load() -> None:
    order, _ = arrivals.drawn(TRACE, 1, 3.0)
    assert sorted(order[: len(TRACE.pods)]) == list(range(len(TRACE.pods)))
    amount = TRACE.amounts()
    asked = sum([amount(TRACE.pods[position]) for position in order])
    assert 2.8 * TRACE.capacity < asked <= 3.0 * TRACE.capacity


def test_a_trace_that_asks_for_more_than_the_load_loses_pods() -> None:
    order, _ = arrivals.drawn(TRACE, 1, 0.5)
    amount = TRACE.amounts()
    assert len(set(order)) == len(order) < len(TRACE.pods)
    assert sum([amount(TRACE.pods[position]) for position in order]) <= 0.5 * TRACE.capacity


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=400))
def test_sums_are_those_of_the_numbers_whatever_their_order_of_adding(held: list[int]) -> None:
    points = Points(Trace((Node("n", 1, 1, (Gpu(10_000),)),), ()))
    for amount in held:
        points.add(1, amount, 0.0, 1)
    (point,) = points.all()
    assert abs(point.allocated - sum(held) / len(held) / 100) < 0.011
