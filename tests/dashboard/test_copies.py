"""Work in a thread has a cluster of its own, and those who ask together share it."""

from gpushare.dashboard.copies import KEPT_SECONDS, Copies
from tests.dashboard.live.world import Clock, World, gpunode, node, pod


def made() -> tuple[World, Copies]:
    world = World(Clock())
    world.put_node(node(8000, name="n"))
    return world, Copies(world.live, world.clock)


def test_while_nothing_changes_everybody_shares_one_copy() -> None:
    world, copies = made()
    first = copies.shared()()
    world.clock.time += 3600
    again = copies.shared()()
    assert again.ledger is first.ledger
    assert again.ledger is not world.live.ledger
    assert again.now == first.now + 3600


def test_a_change_is_seen_by_who_asks_a_second_later() -> None:
    world, copies = made()
    copies.shared()()
    world.put_pod(pod(3000, name="p", uid="p", on="n", gpus=["GPU-n-0"], phase="Running"))
    world.clock.time += KEPT_SECONDS
    there = copies.shared()()
    assert there.ledger.holding("p") is not None
    assert [one.metadata.name for one in there.pods] == ["p"]


def test_what_gpus_do_is_always_that_of_now() -> None:
    world, copies = made()
    assert copies.shared()().doing == {}
    world.put_gpunode(gpunode({"usedMiB": 5}, name="n"))
    assert list(copies.shared()().doing) == ["n"]
