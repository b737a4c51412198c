"""The pods of this node that ask for GPUs, in the order in which they were first seen."""

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.core.facts.model import Refusal, Request
from gpushare.node import pods
from gpushare.node.pods import NodePods
from tests.support import embedded_objects


def pod(name: str, *memory: int | str, **status: object) -> pods.Pod:
    made = embedded_objects.pod(name, *memory) | {"status": status}
    made["metadata"]["uid"] = f"uid-{name}"
    return msgspec.convert(made, pods.Pod)


def test_only_pods_that_ask_are_kept_in_the_order_first_seen() -> None:
    kept = NodePods()
    told: list[str] = []
    kept.listeners.append(told.append)
    for item in (pod("b", 100), pod("none"), pod("a", 200), pod("b", 100, phase="Running")):
        kept.upsert(item)
    assert [seen.facts.name for seen in kept.pods.values()] == ["b", "a"]
    assert kept.pods["uid-b"].facts.running
    assert told == ["uid-b", "uid-a", "uid-b"]


def test_pods_that_name_gpus_without_asking_are_kept_apart_until_they_end() -> None:
    kept = NodePods()
    told: list[str] = []
    changes: list[int] = []
    kept.listeners.append(told.append)
    kept.uncounted_listeners.append(lambda: changes.append(len(kept.uncounted)))
    for name in ("a", "b", "c"):
        kept.upsert(_taking(name, "all"))
    kept.upsert(_taking("void", "void"))
    assert (list(kept.uncounted), kept.pods) == (["uid-a", "uid-b", "uid-c"], {})
    kept.upsert(_taking("a", "all", phase="Succeeded"))
    kept.remove(_taking("b", "all"))
    kept.relisted({"uid-other"})
    assert kept.uncounted == {}
    assert changes == [1, 2, 3, 2, 1, 0]
    assert told == []  # nobody who looks after GPU memory need know


def _taking(name: str, value: str, **status: object) -> pods.Pod:
    env = [{"name": names.VISIBLE_DEVICES, "value": value}]
    made = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"containers": [{"name": "c", "env": env}]}}
    return msgspec.convert(made | {"status": status}, pods.Pod)


def test_containers_that_other_plugins_serve_are_named_while_they_run() -> None:
    kept = NodePods()
    for name in ("a", "b", "c"):
        kept.upsert(_buying(name, "id-1"))
    kept.upsert(_buying("waits", ""))
    kept.upsert(pod("plain"))
    assert list(kept.sold) == ["uid-a", "uid-b", "uid-c"]
    assert kept.sold["uid-a"] == (pods.NamedContainer("ns", "a", "c", "id-1", (names.NVIDIA_GPU,)),)
    kept.upsert(_buying("a", "id-2"))
    assert [container.id for container in kept.sold["uid-a"]] == ["id-2"]
    kept.upsert(_buying("a", "id-2", phase="Failed"))
    kept.remove(_buying("b", "id-1"))
    kept.relisted({"uid-other"})
    assert kept.sold == {}


def _buying(name: str, container_id: str, phase: str = "Running") -> pods.Pod:
    containers = [{"name": "c", "resources": {"limits": {"cpu": "1", names.NVIDIA_GPU: "1"}}}, {"name": "side"}]
    statuses = [{"name": "c", "containerID": f"cri-o://{container_id}" if container_id else ""}]
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    status = {"phase": phase, "containerStatuses": statuses}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers}, "status": status}, pods.Pod)


def test_a_pod_that_asks_nonsense_is_kept_with_its_refusal() -> None:
    kept = NodePods()
    kept.upsert(pod("bytes", "4Gi"))
    assert isinstance(kept.pods["uid-bytes"].facts.request, Refusal)


def test_what_is_gone_is_forgotten_and_said_once() -> None:
    kept = NodePods()
    for name in ("a", "b", "c"):
        kept.upsert(pod(name, 100))
    told: list[str] = []
    kept.listeners.append(told.append)
    kept.remove(pod("a", 100))
    kept.remove(pod("a", 100))
    kept.relisted({"uid-b", "uid-new"})
    assert list(kept.pods) == ["uid-b"]
    assert told == ["uid-a", "uid-c"]


def test_it_knows_the_values_of_variables_and_the_states_of_containers() -> None:
    made = embedded_objects.pod("p", 100, init=[50])
    made["spec"]["containers"][0]["env"].insert(0, {"name": names.VISIBLE_DEVICES, "value": "all"})
    made["status"] = {
        "containerStatuses": [{"name": "c0", "containerID": "containerd://1", "state": {"running": {}}}],
        "initContainerStatuses": [{"name": "i0", "state": {"terminated": {"exitCode": 0}}, "lastState": {}}],
    }  # fmt: skip
    read = msgspec.json.decode(msgspec.json.encode(made), type=pods.Pod)
    assert [container.name for container in read.containers()] == ["i0", "c0"]
    assert [entry.value for entry in read.containers()[1].env or ()] == ["all", None]
    assert [entry.value_from is not None for entry in read.containers()[1].env or ()] == [False, True]
    assert read.statuses()["c0"].container_id == "containerd://1"
    assert [(s.is_running, s.has_started) for s in read.statuses().values()] == [(False, True), (True, True)]


def test_what_it_reads_is_enough_for_the_core() -> None:
    kept = NodePods()
    kept.upsert(pod("p", 100))
    request = kept.pods["uid-p"].facts.request
    assert isinstance(request, Request)
    assert request.shares[0].visible == f"{names.VISIBLE_PREFIX}0"


def test_null_lists_are_no_lists() -> None:
    text = b'{"metadata":{},"spec":{"containers":null},"status":{"containerStatuses":null}}'
    empty = msgspec.json.decode(text, type=pods.Pod)
    assert empty.containers() == []
    assert empty.statuses() == {}


@pytest.mark.parametrize("label", sorted(pods.DCGM_EXPORTER))
def test_nvidias_exporter_is_known_by_its_labels_while_it_runs(label: tuple[str, str]) -> None:
    def exporter(phase: str) -> pods.Pod:
        meta = {"name": "dcgm", "uid": "uid-dcgm", "labels": dict([label])}
        return msgspec.convert({"metadata": meta, "status": {"phase": phase}}, pods.Pod)

    kept = NodePods()
    for phase, there in (("Pending", False), ("Running", True), ("Failed", False), ("Running", True)):
        kept.upsert(exporter(phase))
        assert bool(kept.dcgm_exporters) is there
    kept.relisted(set())
    assert not kept.dcgm_exporters
    kept.upsert(exporter("Running"))
    kept.remove(exporter("Running"))
    assert not kept.dcgm_exporters
    assert not kept.pods


def test_all_pods_of_the_node_are_known_by_the_uids_that_kubelet_uses() -> None:
    kept = NodePods()
    copy = pod("copy")
    copy.metadata.annotations = {pods.STATIC: "of-kubelet"}
    for item in (pod("a", 100), pod("none"), copy):
        kept.upsert(item)
    assert kept.by_kubelets_uid() == {"uid-a": "uid-a", "uid-none": "uid-none", "of-kubelet": "uid-copy"}
    kept.remove(pod("none"))
    kept.relisted({"uid-a"})
    assert kept.by_kubelets_uid() == {"uid-a": "uid-a"}
