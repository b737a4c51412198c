"""What the node object must say, as data: GPUs, health and pods in; annotation and capacity out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import kinds, names, objects
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Unit
from gpushare.gpu.device import Device
from gpushare.gpu.simulated import device
from gpushare.node.publishing import desired
from gpushare.node.publishing.desired import PublishConfig
from tests.support import builders

DIRECT = PublishConfig("n", "MiB", Pin.DIRECT)
PLUGIN = PublishConfig("n", "MiB", Pin.PLUGIN)
TWO = [device(0, "GPU-n-0", 10000), device(1, "GPU-n-1", 6000)]
FACTS = builders.facts(10000, 6000)  # the same two as somebody else reads them


def on(gpu: int, *memory: int, facts: NodeFacts = FACTS, **more: Any) -> PodFacts:
    """A pod bound to one GPU of the node."""
    asking = builders.pod(*memory, direct=facts.pin is Pin.DIRECT, **more)
    return builders.bound(asking, facts, ((gpu,),) * len(memory))


@pytest.mark.parametrize(
    ("unhealthy", "pods", "memory", "count"),
    [
        ([], [], 16000, 2),
        ([], [on(0, 4000), on(1, 6000)], 16000, 2),
        ([0], [], 6000, 1),
        ([0], [on(0, 4000), on(0, 1000), on(1, 2000)], 6000 + 5000, 2),
        ([0], [on(0, 4000, phase="Succeeded")], 6000, 1),
        ([0], [on(0, 4000, terminating=True)], 6000 + 4000, 2),
        ([0, 1], [on(1, 500)], 500, 1),
        ([0, 1], [], 0, 0),
        ([0], [builders.pod(3000, on="n")], 6000, 1),  # nobody says where it is
        ([0], [builders.bound(builders.pod(whole=1), FACTS, ((0,),))], 16000, 2),
        ([1], [on(1, 9000)], 10000 + 6000, 2),  # holds more than there is
        ([0], [builders.pod(0)], 6000, 1),
    ],
)
def test_capacity_is_what_is_healthy_and_what_is_held_on_unhealthy_gpus(
    unhealthy: list[int], pods: list[PodFacts], memory: int, count: int
) -> None:
    wants = desired.wanted(DIRECT, TWO, {f"GPU-n-{i}": "Xid 79" for i in unhealthy}, (), pods, "ready")
    assert wants.capacity == {names.GPU_MEM: memory, names.GPU_COUNT: count}
    assert [gpu.healthy for gpu in wants.facts.gpus] == [i not in unhealthy for i in range(2)]
    assert [gpu.why for gpu in wants.facts.gpus] == ["Xid 79" if i in unhealthy else "" for i in range(2)]


@pytest.mark.parametrize(
    ("mib", "unit", "reserve", "total"),
    [
        (16276, "MiB", 0, 16276),
        (16276, "GiB", 0, 15),
        (11178, "GiB", 0, 10),
        (16276, "MiB", 276, 16000),
        (16384, "GiB", 1, 15),
        (200, "MiB", 300, 0),
        (200, "GiB", 0, 0),
    ],
)
def test_a_gpu_is_counted_as_the_original_counts_it_less_what_is_kept_back(
    mib: int, unit: Unit, reserve: int, total: int
) -> None:
    config = PublishConfig("n", unit, Pin.DIRECT, reserve)
    wants = desired.wanted(config, [device(0, "GPU-x", mib)], {}, (), [], "ready")
    assert [(gpu.total, gpu.healthy) for gpu in wants.facts.gpus] == [(total, total > 0)]
    assert wants.capacity[names.GPU_MEM] == total


SELLING = PublishConfig("n", "MiB", Pin.DIRECT, slots=10, nvidia_whole=True)
SOLD = builders.facts(10000, 6000, slots=10, nvidia_whole=True)
MPS = builders.bound(builders.pod(mps=1), SOLD, ((0,),))
NVIDIA = builders.bound(builders.pod(nvidia=1), SOLD, ((1,),))


@pytest.mark.parametrize(
    ("unhealthy", "pods", "slots", "whole"),
    [
        ([], [], 20, 2),
        ([], [MPS, NVIDIA], 20, 2),
        ([0], [], 10, 1),
        ([0], [MPS], 10 + 1, 2),
        ([1], [NVIDIA], 10, 2),
        ([0, 1], [], 0, 0),
    ],
)
def test_slots_and_nvidias_name_are_sold_of_healthy_gpus_and_kept_for_pods_on_others(
    unhealthy: list[int], pods: list[PodFacts], slots: int, whole: int
) -> None:
    wants = desired.wanted(SELLING, TWO, {f"GPU-n-{i}": "Xid 79" for i in unhealthy}, (), pods, "ready")
    assert (wants.capacity[names.MPS_GPU], wants.capacity[names.NVIDIA_GPU]) == (slots, whole)
    assert (wants.facts.slots, wants.facts.nvidia_whole) == (10, True)


def _node(**capacity: str) -> objects.Node:
    amounts: dict[str, objects.Quantity] = {names.GPU_MEM: "16000", **capacity}
    return objects.Node(objects.Metadata("n"), objects.NodeStatus(amounts, amounts))


def test_what_is_withdrawn_leaves_the_annotation_only_after_the_capacity() -> None:
    """The annotation alone tells our nvidia.com/gpu from that of NVIDIA's plugin, if this process ends in between."""
    has = {names.MPS_GPU: "20", names.NVIDIA_GPU: "2"}
    first = desired.withdrawn(DIRECT, SOLD, _node(**has))
    held = desired.wanted(first, TWO, {}, (), [MPS, NVIDIA], "ready")
    assert (held.capacity[names.MPS_GPU], held.capacity[names.NVIDIA_GPU]) == (1, 1)
    assert (held.facts.slots, held.facts.nvidia_whole) == (10, True)
    free = desired.wanted(first, TWO, {}, (), [], "ready")
    assert (free.capacity[names.MPS_GPU], free.capacity[names.NVIDIA_GPU]) == (0, 0)
    assert (free.facts.slots, free.facts.nvidia_whole) == (10, True)
    gone_by = {names.MPS_GPU: "0", names.NVIDIA_GPU: "0"}
    late = objects.Node(
        objects.Metadata("n"), objects.NodeStatus(dict(gone_by), dict(has))
    )  # kubelet has yet to see it
    assert desired.withdrawn(DIRECT, free.facts, late).old_nvidia
    last = desired.withdrawn(DIRECT, free.facts, _node(**gone_by))
    gone = desired.wanted(last, TWO, {}, (), [], "ready")
    assert (gone.facts.slots, gone.facts.nvidia_whole) == (0, False)
    assert gone.capacity.keys() == {names.GPU_MEM, names.GPU_COUNT}


def test_fewer_slots_than_pods_hold_stay_in_the_capacity_until_they_are_gone() -> None:
    """kubelet, started again, would not take those pods back."""
    few = PublishConfig("n", "MiB", Pin.DIRECT, slots=1)
    pods = [MPS, builders.bound(builders.pod(mps=1), SOLD, ((0,),))]
    assert desired.wanted(few, TWO, {}, (), pods, "ready").capacity[names.MPS_GPU] == 2 + 1


def test_the_capacity_of_nvidias_own_plugin_is_never_touched() -> None:
    config = desired.withdrawn(DIRECT, builders.facts(10000, 6000), _node(**{names.NVIDIA_GPU: "8"}))
    assert names.NVIDIA_GPU not in desired.wanted(config, TWO, {}, (), [], "ready").capacity


def test_kubelet_reports_the_capacity_where_a_plugin_pins() -> None:
    wants = desired.wanted(PLUGIN, TWO, {}, (), [], "ready")
    assert wants.capacity == {}
    assert wants.facts.pin is Pin.PLUGIN


@pytest.mark.parametrize(
    ("pin", "version", "unit", "limit"),
    [
        (Pin.PLUGIN, "v1.36.4", "MiB", 50_000),
        (Pin.PLUGIN, "1.37.0-rc.1", "MiB", 50_000),
        (Pin.PLUGIN, "v2.0.0", "MiB", 50_000),
        (Pin.PLUGIN, "v1.35.9", "MiB", 0),
        (Pin.PLUGIN, "v1.36.4", "GiB", 0),
        (Pin.PLUGIN, "", "MiB", 0),
        (Pin.DIRECT, "v1.36.4", "MiB", 0),
    ],
)
def test_the_limit_of_a_container_is_what_kubelet_can_report(pin: Pin, version: str, unit: Unit, limit: int) -> None:
    node = objects.Node(status=objects.NodeStatus(node_info=objects.NodeInfo(version)))
    assert desired.limit(pin, unit, node) == limit
    assert desired.limit(pin, unit, objects.Node()) == 0
    wants = desired.wanted(PublishConfig("n", unit, pin, limit=limit), TWO, {}, (), [], "ready")
    assert wants.facts.limit == limit
    assert ('"largest":50000' in wants.annotation) is (limit > 0)


def test_a_node_without_gpus_says_so() -> None:
    wants = desired.wanted(DIRECT, [], {}, (), [], "ready")
    assert wants.facts.gpus == ()
    assert wants.capacity == {names.GPU_MEM: 0, names.GPU_COUNT: 0}


GONE = (Gpu(0, "GPU-n-0", 10000), Gpu(1, "GPU-n-1", 6000))  # what was published before
LEFT = [device(0, "GPU-n-1", 6000)]  # the driver numbers anew
NEW = device(0, "GPU-new", 8000)
A, B, LOST_A = (0, "GPU-n-0", True), (1, "GPU-n-1", True), (0, "GPU-n-0", False)


@pytest.mark.parametrize(
    ("devices", "unhealthy", "pods", "expected"),
    [
        # Nobody is there: the driver's numbers count, and what is gone is forgotten.
        (LEFT, {}, [], [(0, "GPU-n-1", True)]),
        # The same in the process that lost it.
        (LEFT, {"GPU-n-0": "lost"}, [], [(0, "GPU-n-1", True), (1, "GPU-n-0", False)]),
        # Somebody is there: numbers stay.
        (LEFT, {}, [on(1, 2000)], [B]),
        (LEFT, {}, [on(0, 2000)], [LOST_A, B]),
        # A new one gets its own number, or one that is free.
        ([*TWO, device(2, "GPU-new", 8000)], {}, [on(1, 2000)], [A, B, (2, "GPU-new", True)]),
        ([NEW, device(1, "GPU-n-1", 6000)], {}, [on(1, 2000)], [(0, "GPU-new", True), B]),
        ([NEW, *LEFT], {}, [on(0, 1), on(1, 1)], [LOST_A, B, (2, "GPU-new", True)]),
    ],
)
def test_a_gpu_that_is_gone_stays_while_it_matters(
    devices: list[Device], unhealthy: dict[str, str], pods: list[PodFacts], expected: list[tuple[int, str, bool]]
) -> None:
    wants = desired.wanted(DIRECT, devices, unhealthy, GONE, pods, "ready")
    assert [(gpu.index, gpu.uuid, gpu.healthy) for gpu in wants.facts.gpus] == expected
    assert all(gpu.why for gpu in wants.facts.gpus if not gpu.healthy)


def test_pods_of_a_device_plugin_find_their_gpu_again_when_the_driver_numbers_anew() -> None:
    facts = builders.facts(10000, 6000, pin="plugin")
    pod = on(1, 2000, facts=facts)
    wants = desired.wanted(PLUGIN, LEFT, {}, facts.gpus, [pod], "ready")
    assert wants.held == {"GPU-n-1": desired.Held(2000, 0, frozenset({kinds.MEMORY}))}


LINKED = msgspec.structs.replace(DIRECT, links={"GPU-n-0": {"GPU-n-1": 4}, "GPU-n-1": {"GPU-n-0": 4}})


def test_gpus_say_which_others_they_are_connected_with() -> None:
    wants = desired.wanted(LINKED, TWO, {}, (), [], "ready")
    assert [gpu.links for gpu in wants.facts.gpus] == [(("GPU-n-1", 4),), (("GPU-n-0", 4),)]
    assert [gpu["links"] for gpu in msgspec.json.decode(wants.annotation)["gpus"]] == [{"GPU-n-1": 4}, {"GPU-n-0": 4}]


def test_until_the_driver_has_told_its_links_what_was_published_stays() -> None:
    before = desired.wanted(LINKED, TWO, {}, (), [], "ready")
    assert desired.wanted(DIRECT, TWO, {}, before.facts.gpus, [], "ready") == before
    none = msgspec.structs.replace(DIRECT, links={"GPU-n-0": {}, "GPU-n-1": {}})
    assert all(not gpu.links for gpu in desired.wanted(none, TWO, {}, before.facts.gpus, [], "ready").facts.gpus)


def test_nothing_is_connected_with_a_gpu_that_is_not_there() -> None:
    wants = desired.wanted(LINKED, TWO[:1], {}, (), [], "ready")
    assert [gpu.links for gpu in wants.facts.gpus] == [()]


def test_draining_changes_the_state_and_nothing_else() -> None:
    ready = desired.wanted(DIRECT, TWO, {}, (), [], "ready")
    draining = desired.wanted(DIRECT, TWO, {}, (), [], "draining")
    assert msgspec.json.decode(draining.annotation) == msgspec.json.decode(ready.annotation) | {"state": "draining"}
    assert draining.capacity == ready.capacity
    assert draining.facts.blocked is not None


WANTS = desired.wanted(DIRECT, TWO, {}, (), [], "ready")
RIGHT: dict[str, objects.Quantity] = {
    names.GPU_MEM: "16k",
    names.GPU_COUNT: "2",
    "cpu": "64",
}  # as the API server writes it


@pytest.mark.parametrize(
    ("annotation", "capacity", "annotate", "count"),
    [
        (WANTS.annotation, RIGHT, False, False),
        (None, RIGHT, True, False),
        (WANTS.annotation + " ", RIGHT, True, False),
        (WANTS.annotation, None, False, True),
        (WANTS.annotation, RIGHT | {names.GPU_MEM: "0"}, False, True),
        (WANTS.annotation, RIGHT | {names.GPU_COUNT: "1"}, False, True),
        (WANTS.annotation, RIGHT | {names.GPU_MEM: "nonsense"}, False, True),
        (None, {}, True, True),
    ],
)
def test_only_what_is_wrong_is_written(
    annotation: str | None, capacity: dict[str, objects.Quantity] | None, annotate: bool, count: bool
) -> None:
    said = None if annotation is None else {names.NODE_GPUS: annotation, "other": "x"}
    missing = desired.changes(
        WANTS, objects.Node(objects.Metadata("n", annotations=said), objects.NodeStatus(capacity))
    )
    assert (missing.annotation is not None, missing.capacity is not None) == (annotate, count)


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (builders.node(10000, 6000), ["GPU-n-0", "GPU-n-1"]),
        (builders.node(10000, 6000, pin="plugin"), ["GPU-n-0", "GPU-n-1"]),
        (builders.node(10, 6, unit="GiB"), ["GPU-n-0", "GPU-n-1"]),
        (builders.node(10000, 6000, pin="aliyun"), []),
        (objects.Node(), []),
        (objects.Node(objects.Metadata("n", annotations={names.NODE_GPUS: "nonsense"})), []),
    ],
)
def test_what_the_predecessor_published_is_believed(node: objects.Node, found: list[str]) -> None:
    before = desired.published(node)
    assert [gpu.uuid for gpu in (before.gpus if before else ())] == found


def test_what_was_published_in_another_unit_is_counted_anew() -> None:
    assert [gpu.total for gpu in desired.recounted(builders.facts(10, 6, unit="GiB"), "MiB")] == [10240, 6144]
    assert [gpu.total for gpu in desired.recounted(FACTS, "GiB")] == [9, 5]
    assert desired.recounted(FACTS, "MiB") == FACTS.gpus


IN_GIB = builders.facts(9, 5, unit="GiB")
GIB, MIB = on(0, 4, facts=IN_GIB), on(1, 4000)
BY_HAND, OLD = builders.pod(4, on="n"), builders.pod(4, on="n", direct=False)


@pytest.mark.parametrize(
    ("asked", "last", "pods", "counts"),
    [
        ("MiB", "GiB", [], "MiB"),
        ("MiB", "GiB", [GIB], "GiB"),
        ("MiB", "GiB", [on(0, 4, facts=IN_GIB, terminating=True)], "GiB"),
        ("MiB", "GiB", [on(0, 4, facts=IN_GIB, phase="Succeeded")], "MiB"),
        ("MiB", "GiB", [GIB, MIB], "GiB"),
        ("MiB", "GiB", [MIB], "MiB"),
        ("MiB", "GiB", [OLD], "GiB"),  # nobody says when it came: its number means what the node said last
        ("MiB", "GiB", [BY_HAND], "MiB"),  # holds nothing, and must not keep the node from changing
        ("MiB", None, [], "MiB"),
        ("MiB", None, [GIB], "GiB"),  # pods of Aliyun's plugin, or a node object that was made anew
        ("MiB", None, [GIB, MIB], "MiB"),
        ("MiB", None, [OLD], "MiB"),
        ("MiB", "MiB", [GIB, MIB], "MiB"),
        ("MiB", "MiB", [GIB], "MiB"),  # bound while the node changed, or forged: nobody turns a node back
        ("GiB", "MiB", [MIB], "MiB"),
        ("GiB", "MiB", [on(0, 4)], "MiB"),
        ("GiB", "MiB", [], "GiB"),
        ("GiB", "GiB", [GIB], "GiB"),
        ("GiB", "GiB", [MIB], "GiB"),
    ],
)
def test_the_unit_that_running_pods_were_given_is_kept_until_none_is_left(
    asked: Unit, last: Unit | None, pods: list[PodFacts], counts: Unit
) -> None:
    assert desired.unit(PublishConfig("n", asked, Pin.DIRECT), TWO, last, pods) == counts


def test_the_drivers_words_are_cut() -> None:
    wants = desired.wanted(DIRECT, TWO, {"GPU-n-0": "x" * 10_000}, (), [], "ready")
    assert len(wants.facts.gpus[0].why) == desired.LONGEST_WHY


@given(
    st.lists(st.integers(0, 7), unique=True, max_size=5),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=5, unique_by=(lambda p: p[0], lambda p: p[1])),
    st.sets(st.integers(0, 7)),
    st.sampled_from(["MiB", "GiB"]),
    st.booleans(),
)
def test_what_is_written_is_always_understood(
    there: list[int], before: list[tuple[int, int]], unhealthy: set[int], unit: Unit, busy: bool
) -> None:
    """Whatever is lost, added and numbered anew: readers take the annotation, and the capacity agrees with it."""
    devices = [device(i, f"GPU-{name}", 4096 + name) for i, name in enumerate(there)]
    known = [Gpu(index, f"GPU-{name}", 4) for name, index in before]
    pods = [builders.pod(1, on="n")] if busy else []
    wants = desired.wanted(
        PublishConfig("n", unit, Pin.DIRECT),
        devices,
        {f"GPU-{name}": "unhealthy" for name in unhealthy},
        known,
        pods,
        "ready",
    )
    node = objects.Node(
        objects.Metadata("n", annotations={names.NODE_GPUS: wants.annotation}),
        objects.NodeStatus({name: str(amount) for name, amount in wants.capacity.items()}),
    )
    read = node_gpus.read(node, frozenset())
    assert (read.gpus if read else ()) == wants.facts.gpus
    assert {gpu.uuid for gpu in wants.facts.gpus} >= {device.uuid for device in devices}
    assert not node_gpus.contradicts(node)
    again = desired.wanted(
        PublishConfig("n", unit, Pin.DIRECT),
        devices,
        {f"GPU-{name}": "unhealthy" for name in unhealthy},
        wants.facts.gpus,
        pods,
        "ready",
    )
    assert again.annotation == wants.annotation  # what is published does not wander
