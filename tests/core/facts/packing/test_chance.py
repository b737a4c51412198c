"""`random`: each node and each GPU with room as likely as the others, and the same pod always the same."""

from collections import Counter

from gpushare.core.facts.packing import chance

NODES = [f"node-{i}" for i in range(8)]


def test_every_node_is_as_likely_as_the_others() -> None:
    counts = Counter([next(chance.shuffled(str(uid), NODES)) for uid in range(8000)])
    assert set(counts) == set(NODES)
    assert all(850 < count < 1150 for count in counts.values())


def test_every_gpu_is_as_likely_as_the_others() -> None:
    points = [chance.points(str(uid), "node-1", 4) for uid in range(4000)]
    counts = Counter([each.index(max(each)) for each in points])
    assert all(850 < counts[gpu] < 1150 for gpu in range(4))


def test_all_nodes_come_once_and_in_the_same_order_for_the_same_pod() -> None:
    orders = [list(chance.shuffled("uid", NODES)) for _ in range(2)]
    assert orders[0] == orders[1] != NODES
    assert sorted(orders[0]) == NODES
