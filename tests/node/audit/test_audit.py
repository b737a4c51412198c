"""The audit finds each problem on a node, and nothing else; and reports it where people look."""

from typing import Any

import msgspec
import pytest

from gpushare.core.explain.event_texts import (
    AUDIT_CODES,
    BOUND_BY_HAND,
    NVIDIA_TOO,
    OTHER_UNIT,
    OVERCOMMITTED,
    TOO_SMALL,
    UNASKED_GPU,
    UNIT_KEPT,
    WRONG_GPU,
)
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import Request, Unit
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.simulated import Simulated
from gpushare.kube import events
from gpushare.node import pods
from gpushare.node.audit import findings, visible_gpus
from gpushare.node.pods import NodePod
from tests.node import world
from tests.node.world import bound, capacity, running, starts, warnings
from tests.support import builders, embedded_objects
from tests.support.wait import eventually, until

DIRECT = builders.facts(16000, 8000)
PLUGIN = builders.facts(16000, 8000, pin="plugin")
PLAIN = builders.node(16000, 8000)
FIRST, SECOND = "2026-11-15T12:00:00Z", "2026-11-15T13:00:00Z"


def pod(
    name: str, memory: int, gpu: int, *, direct: bool = True, env: list[world.Object] | None = None, started: str = "",
    **changes: Any,
) -> NodePod:  # fmt: skip
    """Bound to a GPU of the node; `env`: what its author wrote, before what admission adds."""
    made = embedded_objects.pod(name, memory, direct=direct)
    container = made["spec"]["containers"][0]
    container["env"] = [*(env or []), *container.get("env", [])]
    made["metadata"] |= {"uid": f"uid-{name}", "annotations": dict(changes.pop("annotations", {}))}
    if not made["metadata"]["annotations"]:
        facts = request.facts(msgspec.convert(made, objects.Pod), None)
        node = DIRECT if isinstance(facts.request, Request) and facts.request.pin == "direct" else PLUGIN
        made["metadata"]["annotations"] = dict(builders.bound(facts, node, ((gpu,),)).annotations)
    if started:
        state = {"name": "c0", "containerID": f"containerd://{started}", "state": {"running": {"startedAt": started}}}
        made["status"] = {"phase": "Running", "containerStatuses": [state]}
    made.setdefault("status", {}).update(changes)
    seen = msgspec.convert(made, pods.Pod)
    return NodePod(request.facts(seen, "MiB"), seen)


def own(value: str) -> list[world.Object]:
    return [{"name": names.VISIBLE_DEVICES, "value": value}]


def found(*seen: NodePod, facts: Any = DIRECT, node: objects.Node = PLAIN, unit: Unit = "MiB") -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in findings.findings(facts, seen, node, {}, unit)]


def only_bound(name: str, memory: int, *, direct: bool, namespace: str = "default", **status: Any) -> NodePod:
    """By hand: nothing but the node's name."""
    made = embedded_objects.pod(name, memory, direct=direct)
    made["metadata"] |= {"uid": f"uid-{name}", "annotations": {"gpushare.io/woken": "x"}, "namespace": namespace}
    made["spec"]["nodeName"], made["status"] = "n", status
    seen = msgspec.convert(made, pods.Pod)
    return NodePod(request.facts(seen, None), seen)


def test_a_pod_bound_by_hand_is_named_on_the_node() -> None:
    (finding,) = findings.findings(DIRECT, [only_bound("mine", 3000, direct=True)], PLAIN, {}, "MiB")
    assert (finding.code, finding.pod) == (BOUND_BY_HAND, None)
    assert finding.message == (
        "Pod default/mine was not bound by gpushare: it sees no GPU and counts on none. "
        "Delete it, and create it without nodeName."
    )
    ((_, message),) = found(only_bound("mine", 3000, direct=False), facts=PLUGIN)
    assert message == (
        "Pod default/mine was not bound by gpushare: its GPU is not known, so it counts on every GPU. "
        "Delete it, and create it without nodeName."
    )
    ((_, message),) = found(only_bound("p" * 253, 3000, direct=False, namespace="n" * 63), facts=PLUGIN)
    assert message.endswith("create it without nodeName.")
    assert len(message) <= 200
    assert found(only_bound("mine", 3000, direct=True, phase="Failed")) == []


def test_a_pod_given_memory_in_another_unit_is_found_with_what_it_is_charged() -> None:
    noted = {names.ALIYUN_IDX: "0", names.ALIYUN_DEV: "15", names.ALLOCATION: '{"0":{"0":8}}'}
    ((code, message),) = found(pod("old", 8, 0, direct=False, annotations=noted), facts=PLUGIN)
    assert code == OTHER_UNIT
    assert message == (
        "It was given GPU memory in GiB on a node that now counts MiB: 8 GiB are charged as 8192 MiB. "
        "Create it again with an amount in MiB."
    )
    more = [pod(f"p{i}", 5000, 0, direct=False) for i in range(2)]
    codes = [code for code, _ in found(pod("old", 8, 0, direct=False, annotations=noted), *more, facts=PLUGIN)]
    assert codes == [OVERCOMMITTED, OTHER_UNIT]


def test_a_node_that_keeps_its_unit_says_so_in_one_sentence() -> None:
    gib = builders.facts(15, 7, unit="GiB", pin="plugin")
    said = (
        "Pods here were given memory in GiB, so this node counts GiB until they are gone, and MiB from then on. "
        "Drain it to change that now: docs/nodes.md."
    )
    assert found(facts=gib) == [(UNIT_KEPT, said)]
    assert found(facts=gib, unit="GiB") == []


def test_a_node_on_which_all_is_well_has_no_findings() -> None:
    assert found(pod("a", 9000, 0, started=FIRST), pod("b", 7000, 0), pod("c", 8000, 1)) == []


def test_a_gpu_whose_pods_hold_more_than_it_has_is_found() -> None:
    assert found(pod("a", 9000, 0), pod("b", 7001, 0), pod("c", 8000, 1)) == [
        (OVERCOMMITTED, "GPU 0: its pods hold 16001 of 16000 MiB: default/a 9000, default/b 7001. Delete one of them.")
    ]


def test_more_slots_than_there_are_is_found_and_memory_is_not_blamed() -> None:
    few = builders.facts(16000, 8000, slots=1)
    holders = [builders.bound(builders.pod(mps=1, slot_memory="100Mi", name=name), few, ((0,),)) for name in "ab"]
    text = "GPU 0: its pods hold 2 of 1 MPS slots: default/a 1, default/b 1. Delete one of them."
    assert [(f.code, f.message) for f in findings._overcommitted(few, holders)] == [(OVERCOMMITTED, text)]


def test_what_we_sell_under_nvidias_name_is_no_second_plugin_but_replicas_are() -> None:
    ours = builders.facts(16000, 8000, nvidia_whole=True)
    assert found(facts=ours, node=builders.node(16000, 8000, nvidia_whole=True)) == []
    ((code, message),) = found(facts=ours, node=builders.node(16000, 8000, nvidia_whole=True, nvidia=8))
    assert (code, "nvidia.com/gpu: 8" in message) == (NVIDIA_TOO, True)


def test_the_largest_are_named_and_the_sentence_stays_short() -> None:
    many = [pod(f"pod-with-a-rather-long-name-{i:030}", 1000 + i, 1) for i in range(20)]
    ((code, message),) = found(*many)
    assert code == OVERCOMMITTED
    assert len(message) <= 200
    assert "GPU 1: its pods hold 20190 of 8000 MiB" in message
    assert "default/pod-with-a-ra…000019 1019" in message


@pytest.mark.parametrize(
    "seen",
    [
        pod("ended", 9000, 0, phase="Succeeded"),
        pod("unknown", 9000, 0, annotations={"x": "y"}),  # sees no GPU, on a node that pins directly
        pod("foreign", 9000, 0, annotations={f"{names.VISIBLE_PREFIX}0": "GPU-of-another-node"}),
    ],
)
def test_who_holds_nothing_takes_nothing(seen: NodePod) -> None:
    assert OVERCOMMITTED not in [code for code, _ in found(seen, pod("other", 9000, 0))]


@pytest.mark.parametrize(
    ("value", "sees"),
    [
        ("all", "GPU 0 and GPU 1"),
        ("1", "GPU 1"),
        ("0,1", "GPU 0 and GPU 1"),
        ("GPU-n-1", "GPU 1"),
        ("0", ""),
        ("GPU-n-0", ""),
        ("none", ""),
        ("void", ""),
        ("", ""),
        ("GPU-of-another-node", ""),
    ],
)
def test_a_tenants_own_variable_that_names_other_gpus_is_found(value: str, sees: str) -> None:
    """On plugin nodes: the variable in the spec wins over what the plugin gives."""
    seen = pod("greedy", 3000, 0, direct=False, env=own(value))
    message = (
        f'Container c0 sees {sees}, its share is on GPU 0: its own NVIDIA_VISIBLE_DEVICES "{value}" wins over '
        "gpushare's. Remove that variable from the pod."
    )
    assert found(seen, facts=PLUGIN) == ([(WRONG_GPU, message)] if sees else [])


def test_a_tenants_own_variable_before_ours_does_not_count() -> None:
    assert found(pod("harmless", 3000, 0, env=own("all"))) == []


def test_a_pod_bound_around_us_that_takes_all_gpus_is_found() -> None:
    seen = pod("around", 3000, 0, direct=False, env=own("all"), annotations={"x": "y"})
    ((code, message), (more, _)) = found(seen)
    assert (code, more) == (WRONG_GPU, BOUND_BY_HAND)
    assert "sees GPU 0 and GPU 1, its share is on no GPU" in message


def test_long_values_and_many_gpus_leave_room_for_the_way_out() -> None:
    eight = builders.facts(*[16000] * 8, pin="plugin")
    value = ",".join(f"GPU-n-{i}" for i in range(8))
    ((_, message),) = found(pod("greedy", 3000, 0, direct=False, env=own(value)), facts=eight)
    assert len(message) <= 200
    assert "sees 8 GPUs" in message
    assert message.endswith("Remove that variable from the pod.")


def moved(seen: NodePod, *history: NodePod) -> list[str]:
    known: visible_gpus.Starts = {}
    for former in (*history, seen):
        known = visible_gpus.starts(former, known)
    return [finding.message for finding in findings.findings(DIRECT, [seen], PLAIN, {seen.facts.uid: known}, "MiB")]


def test_an_annotation_changed_after_the_start_is_found() -> None:
    before, after = (pod("p", 3000, gpu, started=FIRST) for gpu in (0, 1))
    assert moved(before) == []
    says = "Container c0 uses GPU 0, but annotation gpushare.io/visible-0 now says GPU 1: what it uses is given to "
    assert moved(after, before) == [says + "others. Restart the pod, and find out who wrote that."]
    gone = pod("p", 3000, 0, started=FIRST, annotations={"x": "y"})
    assert "now says no GPU" in moved(gone, before)[0]


def test_a_container_that_started_again_has_what_its_annotation_says() -> None:
    before, after, again = pod("p", 3000, 0, started=FIRST), pod("p", 3000, 1), pod("p", 3000, 1, started=SECOND)
    assert moved(after, before) == []
    assert moved(again, before, after) == []


@pytest.mark.parametrize(
    ("allocatable", "text"),
    [(None, ""), ({}, ""), ({names.NVIDIA_GPU: "0"}, ""), ({names.NVIDIA_GPU: "8"}, "(nvidia.com/gpu: 8)")],
)
def test_nvidias_plugin_on_the_same_node_is_found(allocatable: dict[str, objects.Quantity] | None, text: str) -> None:
    node = objects.Node(objects.Metadata("n"), objects.NodeStatus(allocatable=allocatable))
    findings = found(node=node)
    assert [code for code, _ in findings] == ([NVIDIA_TOO] if text else [])
    assert all(text in message and len(message) <= 200 for _, message in findings)


def silent(*containers: world.Object, namespace: str = "default", **changes: Any) -> NodePod:
    """A pod of these containers, which may ask or not."""
    metadata = {"name": "silent", "namespace": namespace, "uid": "uid-silent", "annotations": {"taken": "0"}}
    made: world.Object = {"metadata": metadata, "spec": {"containers": [], "nodeName": "n"}, "status": {}}
    lists = {"init": "initContainers", "debug": "ephemeralContainers"}
    for container in containers:
        made["spec"].setdefault(lists.get(container["name"], "containers"), []).append(container)
    made["status"] |= changes
    seen = msgspec.convert(made, pods.Pod)
    return NodePod(request.facts(seen, "MiB"), seen)


def container(name: str, env: list[world.Object], **limits: str) -> world.Object:
    resources = {"mem": names.GPU_MEM, "count": names.GPU_COUNT}
    return {"name": name, "env": env, "resources": {"limits": {resources[key]: value for key, value in limits.items()}}}


def taken_from(reference: world.Object) -> list[world.Object]:
    return [{"name": names.VISIBLE_DEVICES, "valueFrom": reference}]


def unasked(seen: NodePod, node: objects.Node = PLAIN) -> list[str]:
    found = visible_gpus.unasked(node, [seen])
    assert all(finding.code == UNASKED_GPU and finding.pod == seen.facts for finding in found)
    return [finding.message for finding in found]


NOT_ASKED = (
    "Container {name} asks for no GPU, but its NVIDIA_VISIBLE_DEVICES is {value}: what it uses is not counted. Ask for "
    "GPU memory, or remove the variable."
)


@pytest.mark.parametrize(
    ("env", "value"),
    [
        (own("all"), '"all"'),
        (own("1"), '"1"'),
        (own("GPU-n-1"), '"GPU-n-1"'),
        (own("nvidia.com/gpu=all"), '"nvidia.com/gpu=all"'),
        (own("void") + own("all"), '"all"'),
        (own("all") + own("void"), ""),
        (own("none"), ""),
        (own(""), ""),
        (own(" , "), ""),
        (own("0,void"), ""),
        ([], ""),
        ([{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}], ""),
        (taken_from({"configMapKeyRef": {"name": "c", "key": "k"}}), "taken from elsewhere"),
        (taken_from({"fieldRef": {"fieldPath": "metadata.labels['gpu']"}}), "taken from elsewhere"),
        (taken_from({"fieldRef": {"fieldPath": "metadata.annotations['taken']"}}), '"0"'),
        (taken_from({"fieldRef": {"fieldPath": "metadata.annotations['gpushare.io/visible-0']"}}), ""),
    ],
)
def test_a_container_that_asks_for_no_gpu_and_names_some_is_found(env: list[world.Object], value: str) -> None:
    expected = [NOT_ASKED.format(name="main", value=value)] if value else []
    seen = silent(container("main", env))
    assert unasked(seen) == expected
    assert seen.pod.names_gpus() or not expected


def test_every_kind_of_container_counts_and_a_pod_is_named_once() -> None:
    asks, takes = container("main", [], mem="1"), own("all")
    for name in ("beside", "init", "debug"):
        assert unasked(silent(asks, container(name, takes))) == [NOT_ASKED.format(name=name, value='"all"')]
    assert len(unasked(silent(container("one", takes), container("two", takes)))) == 1
    long = silent(container("c" * 63, own("GPU-" + "0" * 63)))
    assert len(unasked(long)[0]) <= 200
    assert unasked(long)[0].endswith("remove the variable.")


@pytest.mark.parametrize("limits", [{"mem": "1"}, {"count": "1"}])
def test_who_asks_is_counted_otherwise(limits: dict[str, str]) -> None:
    assert unasked(silent(container("main", own("all"), **limits))) == []


def test_asking_for_zero_is_asking_for_nothing() -> None:
    assert len(unasked(silent(container("main", own("all"), mem="0")))) == 1


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_nvidias_resources_count_only_where_somebody_hands_them_out(resource: str) -> None:
    """kubelet starts a pod that names its node, whatever it asks of resources that the node does not have."""
    seen = silent(container("main", own("all")) | {"resources": {"limits": {resource: "1"}}})
    others: tuple[dict[str, objects.Quantity], ...] = ({}, {resource: "0"}, {"nvidia.com/mig-7g.80gb": "8"})
    for offered in others:
        assert len(unasked(seen, objects.Node(objects.Metadata("n"), objects.NodeStatus(allocatable=offered)))) == 1
    assert unasked(seen, objects.Node(objects.Metadata("n"), objects.NodeStatus(allocatable={resource: "8"}))) == []


def test_what_the_node_hands_out_besides_gpus_is_no_asking() -> None:
    seen = silent(container("main", own("all")) | {"resources": {"limits": {"cpu": "1", "nvidia.com/nic": "1"}}})
    node = objects.Node(objects.Metadata("n"), objects.NodeStatus(allocatable={"cpu": "64", "nvidia.com/nic": "2"}))
    assert len(unasked(seen, node)) == 1


def test_gpu_tools_may_see_all_gpus_and_what_has_ended_sees_none() -> None:
    takes = container("main", own("all"))
    assert unasked(silent(takes, namespace="kube-system")) == []
    assert unasked(silent(takes, namespace="gpu-operator")) == []
    assert unasked(silent(takes, phase="Succeeded")) == []
    over: world.Object = {"name": "debug", "state": {"terminated": {"exitCode": 0}}}
    on: world.Object = {"name": "debug", "state": {"running": {}}}
    debug = container("debug", own("all"))
    assert unasked(silent(debug, ephemeralContainerStatuses=[over])) == []
    assert len(unasked(silent(debug, ephemeralContainerStatuses=[on]))) == 1


async def test_what_is_found_becomes_events_and_numbers(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server)[0])
        bound(server, "large", 9000, on="GPU-1")
        bound(server, "larger", 9000, on="GPU-1")
        bound(server, "moves", 100, on="GPU-0")
        starts(server, "moves", "c0")
        await until(server, lambda: (OVERCOMMITTED, world.NAME) in [found[:2] for found in warnings(server)])
        await eventually(lambda: any(seen.facts.running for seen in node.pods.pods.values()))
        change = {"metadata": {"annotations": {f"{names.VISIBLE_PREFIX}0": "GPU-1"}}}
        server.registry.patch(embedded_objects.PODS, "default", "moves", embedded_objects.MERGE, change, "")
        await until(server, lambda: (WRONG_GPU, "moves") in [found[:2] for found in warnings(server)])
        world.patch(server, {"status": {"capacity": {names.NVIDIA_GPU: "2"}}}, "status")
        await until(server, lambda: (NVIDIA_TOO, world.NAME) in [found[:2] for found in warnings(server)])
        three = {code: int(code in (OVERCOMMITTED, WRONG_GPU, NVIDIA_TOO)) for code in AUDIT_CODES}
        assert await eventually(lambda: node.sight.found() == three)
        free = {"containers": [container("main", own("all")) | {"image": "x"}], "nodeName": world.NAME}
        embedded_objects.create(server, {"metadata": {"name": "free", "namespace": "default"}, "spec": free})
        await until(server, lambda: (UNASKED_GPU, "free") in [found[:2] for found in warnings(server)])
        assert await eventually(lambda: node.sight.found()[UNASKED_GPU] == 1)
        for name in ("large", "larger", "moves", "free"):
            embedded_objects.delete(server, name)
        world.patch(server, {"status": {"capacity": {names.NVIDIA_GPU: "0"}}}, "status")
        await eventually(lambda: not any(node.sight.found().values()))
        said = warnings(server)
        assert len(set(said)) == len(said)  # again and again it would fill the event list


@pytest.mark.parametrize(
    ("unit", "way"), [("GiB", "Count in MiB: --memory-unit=MiB"), ("MiB", "Reserve less: --reserve")]
)
def test_a_gpu_smaller_than_one_unit_is_named_with_a_way_out(unit: Unit, way: str) -> None:
    facts = msgspec.structs.replace(builders.facts(15, 0), unit=unit)
    text = f"GPU 1 (T4) has less than 1 {unit} to give out, so no pod can use it. {way} (docs/nodes.md)."
    assert found(facts=facts, unit=unit) == [(TOO_SMALL, text)]


async def test_a_gpu_smaller_than_one_unit_is_reported_once(
    server: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "AGAIN", 0.0)  # the recorder leaves out nothing
    async with running(server.url, Simulated(world.devices(16276, 512)), world.CONFIG._replace(unit="GiB")) as node:
        await until(server, lambda: [w[:2] for w in warnings(server)] == [(TOO_SMALL, world.NAME)])
        assert [gpu["total"] for gpu in (world.said(server) or {})["gpus"]] == [15, 0]
        assert capacity(server) == ("15", "1")
        bound(server, "large", 15, on="GPU-0")
        bound(server, "larger", 15, on="GPU-0")  # makes it audit again
        await until(server, lambda: OVERCOMMITTED in [reason for reason, *_ in warnings(server)])
        assert node.sight.found()[TOO_SMALL] == 1
    assert [reason for reason, *_ in warnings(server)].count(TOO_SMALL) == 1
    assert len([r for r in caplog.records if r.message == "audit" and TOO_SMALL in str(r.__dict__)]) == 1
