"""The live cluster is at every moment what a command would read of it; and it is so for little memory."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.explain.inspected import inspected
from gpushare.core.facts import names
from gpushare.core.facts.vitals import is_fresh
from gpushare.view import sold, usage
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import waiting
from tests.dashboard.live import world
from tests.dashboard.live.events import EVENTS, Event
from tests.dashboard.live.world import World


def said(cluster: Snapshot) -> dict[str, Any]:
    """All that commands show of a cluster."""
    uses = usage.nodes(cluster)
    for use in uses:
        use.pods.sort(key=lambda one: one.pod.uid)
    fresh = {name: status for name, status in cluster.doing.items() if is_fresh(status, world.NOW)}
    states = [state for use in uses if (state := cluster.ledger.node(use.name)) is not None]
    return {
        "usage": msgspec.to_builtins([msgspec.structs.replace(use, facts=None, pods=[]) for use in uses]),
        "pods": [(use.name, one.pod.uid, one.on, one.pending, one.why, one.slots) for use in uses for one in use.pods],
        "facts": [use.facts for use in uses],
        "inspected": [inspected(state, fresh.get(state.name)) for state in states if state.facts is not None],
        "waiting": [waiting.view(one) for one in waiting.pods(cluster, waiting.who(cluster))],
        "sold": [(use.node, use.resource, use.total, use.used, use.unhealthy) for use in sold.uses(cluster)],
        "asking": [(pod.uid, pod.request) for pod in cluster.asking],
        "kept": sorted((kept.pod.uid, kept.node, kept.keys) for kept in cluster.ledger.kept()),
    }


@given(st.lists(EVENTS, max_size=25), st.integers(0, 25))
@settings(max_examples=300)
def test_after_any_events_it_says_what_a_command_would_say(events: list[Event], look_at: int) -> None:
    api = World()
    for number, event in enumerate(events):
        event(api)
        if number == look_at:
            api.live.snapshot()  # somebody looks meanwhile
    expected = said(api.snapshot())
    assert said(api.live.snapshot()) == expected
    assert said(api.live.isolated()) == expected


def test_a_moved_pod_is_only_where_it_is_shown() -> None:
    api = World()
    api.put_node(world.node(8, 8))
    api.put_pod(world.pod(4, name="p", on="n", gpus=["GPU-n-0"]))
    api.put_pod(world.pod(4, name="p", on="n", gpus=["GPU-n-1"]))
    assert [gpu.used for gpu in usage.nodes(api.live.snapshot())[0].gpus] == [0, 4]


def test_a_restored_cluster_takes_bindings_back() -> None:
    api = World()
    api.put_node(world.node(8))
    api.put_pod(world.pod(4, name="p", on="n", gpus=["GPU-n-0"]))
    api.list_pods(world.pod(4, name="p"))
    assert usage.nodes(api.live.snapshot())[0].gpus[0].used == 0
    assert len(waiting.who(api.live.snapshot())) == 1


def test_a_gpunode_that_cannot_be_read_hides_no_other() -> None:
    api = World()
    api.put_gpunode(world.gpunode({"usedMiB": 3}, name="a"))
    api.put_gpunode(b'{"metadata":{"name":"b"},"status":{"gpus":[{"usedMiB":"much"}]}}')
    assert list(api.live.snapshot().doing) == ["a"]


def test_what_is_trusted_no_longer_is_dropped_when_it_becomes_unreadable() -> None:
    api = World()
    api.put_gpunode(world.gpunode({"usedMiB": 3}, name="a"))
    api.put_gpunode(b'{"metadata":{"name":"a"},"status":3}')
    assert not api.live.snapshot().doing


def test_lists_are_by_name_and_the_same_until_something_changes() -> None:
    api = World()
    for name in ("z", "a"):
        api.put_pod(world.pod(4, name=name))
        api.put_node(world.node(8, name=name))
    first = api.live.snapshot()
    assert [pod.metadata.name for pod in first.pods] == [pod.name for pod in first.asking] == ["a", "z"]
    assert [node.metadata.name for node in first.nodes] == ["a", "z"]
    assert api.live.snapshot().pods is first.pods
    api.end_pod("uid-a")
    api.put_pod(world.pod(4, name="m"))
    assert [pod.metadata.name for pod in api.live.snapshot().pods] == ["m", "z"]
    api.end_pod("uid-m")
    api.put_pod(world.pod(4, name="m"))  # a stream that was cut may show the same pod again
    assert [pod.metadata.name for pod in api.live.snapshot().pods] == ["m", "z"]
    assert [pod.metadata.name for pod in first.pods] == ["a", "z"]  # what was given out stays as it was


def test_an_isolated_snapshot_does_not_change_with_the_cluster() -> None:
    api = World()
    api.put_node(world.node(8))
    build = api.live.isolating()
    api.put_pod(world.pod(4, name="p", on="n", gpus=["GPU-n-0"]))
    alone = build()
    assert not alone.pods
    assert usage.nodes(alone)[0].gpus[0].used == 0
    alone.ledger.remove_node("n")
    assert api.live.ledger.facts("n") is not None


def test_pods_of_one_deployment_share_what_is_equal() -> None:
    api = World()
    for name in ("p", "q"):
        api.put_pod(world.pod(4, name=name, split_label=1, owner="rs"))
    one, other = api.live.snapshot().pods
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert api.live.pods.asking["uid-p"].request is api.live.pods.asking["uid-q"].request


def test_what_nobody_reads_of_a_pod_is_not_kept() -> None:
    api = World()
    api.put_pod(world.pod(4, name="p", notes={"kubectl.kubernetes.io/last-applied-configuration": "x" * 9000}))
    kept = api.live.snapshot().pods[0].metadata.annotations
    assert not kept
    api.put_pod(world.pod(4, name="p", policy="spread"))
    assert api.live.snapshot().pods[0].metadata.annotations == {names.POLICY: "spread"}


def test_a_number_stays_with_its_pod_and_says_nothing_of_its_name() -> None:
    api = World()
    api.put_pod(world.pod(4, name="p"))
    number = api.live.pod_number("uid-p")
    api.put_pod(world.pod(4, name="p", phase="Running"))
    assert api.live.pod_number("uid-p") == number != api.live.pod_number("uid-q")


def test_before_the_first_lists_it_says_that_it_reads() -> None:
    ages = World().live.ages()
    assert (ages.synced, ages.use, ages.failure) == (False, None, "the cluster is being read")


def test_the_age_of_figures_is_that_of_the_newest_ones() -> None:
    api = World()
    api.put_gpunode(world.gpunode({}, name="a", at=world.NOW - 9))
    api.put_gpunode(world.gpunode({}, name="b", at=world.NOW - 30))
    api.put_gpunode(world.gpunode({}, name="c", at=world.NOW + 9000))  # a clock that is wrong says nothing
    assert api.live.ages().use == 9.0


def kept_pods(api: World) -> list[str]:
    return [kept.pod.name for kept in api.live.snapshot().ledger.kept()]


def test_what_is_kept_for_a_pod_is_kept_while_its_node_can_take_it() -> None:
    api = World()
    notes = {names.KEPT: '{"node": "n", "gpus": [["GPU-n-1"]]}'}
    api.put_pod(world.pod(6, name="p", notes=notes))
    assert kept_pods(api) == []
    api.put_node(world.node(8, 8))
    assert kept_pods(api) == ["p"]
    api.put_node(world.node(8, 8, unhealthy=[1]))
    assert kept_pods(api) == []
    api.put_node(world.node(8, 8))
    assert kept_pods(api) == ["p"]
    api.put_pod(world.pod(6, name="p"))
    assert kept_pods(api) == []
    assert not api.live.pods.kept


def test_what_users_write_beside_their_amounts_counts() -> None:
    api = World()
    api.put_pod(world.pod(6, name="p", split=2))
    api.put_pod(world.pod(name="q", mps=1, slot_memory="1Mi"))
    assert said(api.live.isolated())["asking"] == said(api.snapshot())["asking"]


def test_the_number_of_a_pod_that_is_gone_is_given_again_on_its_gpu() -> None:
    api = World()
    numbers = api.live.numbers
    assert [numbers.pod(uid, 3) for uid in ("a", "b", "a")] == [3072, 3073, 3072]
    numbers.forget("a")
    assert numbers.pod("c", 3) == 3072
    assert numbers.pod("d") == numbers.pod("d", 3) > numbers.pod("b")


def test_pods_that_come_and_go_while_nobody_looks_take_no_memory() -> None:
    api = World()
    for number in range(10):
        api.put_pod(world.pod(100, name="p", uid=f"uid-{number}"))
        api.end_pod(f"uid-{number}")
    assert not api.live.pods.came
    assert api.live.snapshot().pods == []
