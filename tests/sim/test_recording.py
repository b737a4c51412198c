"""A live cluster as a trace: everything that a replay needs, and nothing that says whose cluster it is."""

from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.obs.errors import UserError
from gpushare.sim.reading import load
from gpushare.sim.recording import recording, tables
from gpushare.sim.recording.recording import Recording
from gpushare.sim.trace import Gpu, Pod, Trace, written
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, Json

PRODUCT = "nvidia.com/gpu.product"


def node(name: str, *totals: int, model: str = "T4", cpu: str = "64", memory: str = "256Gi", **more: Any) -> Json:
    made = worlds.node(name, *totals, **more)
    for amounts in (made["status"]["capacity"], made["status"]["allocatable"]):
        amounts |= {"cpu": cpu, "memory": memory, "pods": "110"}
    if names.NODE_GPUS in made["metadata"]["annotations"]:
        gpus = [{"i": i, "uuid": f"GPU-{name}-{i}", "total": total, "model": model} for i, total in enumerate(totals)]
        worlds.publish(made, gpus=gpus)
    made["metadata"]["labels"] |= {PRODUCT: model}
    made["spec"] = {}
    return made


def pod(name: str, *memory: object, cpu: str = "1", ram: str = "2Gi", **more: Any) -> Json:
    made = worlds.pod(name, *memory, **more)
    containers = made["spec"]["containers"] or [{"name": "main", "resources": {}}]
    made["spec"]["containers"] = containers
    containers[0]["resources"]["requests"] = {"cpu": cpu, "memory": ram}
    return made


def recorded(nodes: list[Json], pods: list[Json]) -> Recording:
    return recording.read(Cluster((nodes, pods)), worlds.NOW.timestamp())


def one(nodes: list[Json], *pods: Json) -> Pod:
    return recorded(nodes, list(pods)).pods[0]


def test_a_node_has_its_cpu_its_memory_and_its_gpus_in_mib() -> None:
    found = recorded([node("a", 16276, 8000), node("b", 80, unit="GiB", model="A100", cpu="7500m")], []).nodes
    assert [(n.name, n.cpu_milli, n.memory_mib) for n in found] == [("a", 64000, 262144), ("b", 7500, 262144)]
    assert [n.gpus for n in found] == [(Gpu(16276, "T4"), Gpu(8000, "T4")), (Gpu(81920, "A100"),)]


def test_a_pod_asks_what_the_extender_counts_with_the_overhead_of_its_runtime() -> None:
    made = pod("train", 1000)
    made["spec"]["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    asked = one([node("a", 16276)], made)
    assert (asked.cpu_milli, asked.memory_mib) == (1250, 2168)


def test_what_a_node_says_of_itself_has_bounds() -> None:
    made = node("a")
    made["status"]["capacity"] |= {"nvidia.com/gpu": "100000000"}
    made["metadata"]["labels"] |= {"nvidia.com/gpu.memory": "99999999999", "nvidia.com/gpu.replicas": "1000000"}
    asks = pod("p", on="a")
    asks["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 1}
    found = recorded([made], [asks])
    assert found.nodes[0].gpus == (Gpu(16384, "T4"),) * 1024
    assert (found.pods[0].gpus, found.pods[0].gpu_memory_mib) == (1, 1)


def test_a_table_has_no_models_with_bars() -> None:
    with pytest.raises(UserError, match="bars are between models"):
        tables.of_nodes(recorded([node("a", 8000, 8000, model="A|B")], []).nodes)


def test_nodes_without_gpus_and_their_pods_are_not_recorded() -> None:
    found = recorded([node("a", 16276), node("cpu-only")], [pod("web", on="cpu-only"), pod("db", on="a")])
    assert [n.name for n in found.nodes] == ["a"]
    assert [p.name for p in found.pods] == ["default/db"]
    assert found.left_out == []


def test_what_daemons_ask_is_taken_off_their_node() -> None:
    daemon = pod("logs", cpu="500m", ram="1Gi", on="a")
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "uid": "1", "controller": True}]
    found = recorded([node("a", 16276)], [daemon, pod("p", 1000)])
    assert (found.nodes[0].cpu_milli, found.nodes[0].memory_mib) == (63500, 261120)
    assert [p.name for p in found.pods] == ["default/p"]


@pytest.mark.parametrize(
    ("asking", "gpus", "each"),
    [
        (pod("p", 3500), 1, 3500),
        (pod("p", 3500, on="a", at=[[0]]), 1, 3500),
        (pod("p", whole=2), 2, 0),
        (pod("p", 8000, split=2), 2, 4000),
        (pod("p", 8000, split=2, on="a", at=[[0, 1]]), 2, 4000),
        (pod("p", 5000, 3000), 2, 4000),
        (pod("p", on="a"), 0, 0),
    ],
)
def test_what_a_pod_asks_of_gpus(asking: Json, gpus: int, each: int) -> None:
    found = one([node("a", 16276, 16276)], asking)
    assert (found.gpus, found.gpu_memory_mib) == (gpus, each)
    assert (found.cpu_milli, found.memory_mib) == (1000, 2048)


def test_amounts_count_in_the_unit_of_the_node() -> None:
    coarse = [node("a", 15, 15, unit="GiB"), node("b", 15, unit="GiB")]
    assert one(coarse, pod("p", 4, on="a", at=[[0]])).gpu_memory_mib == 4096
    assert one(coarse, pod("p", 4)).gpu_memory_mib == 4096  # it waits: what most nodes count in


def test_an_mps_share_is_the_memory_that_comes_with_a_slot() -> None:
    seller = node("a", 16000, direct=True)
    worlds.publish(seller, slots=4)
    assert one([seller], pod("p", counted={names.MPS_GPU: 1}, direct=True)).gpu_memory_mib == 4000


def test_rules_come_to_the_models_of_the_nodes_that_they_leave() -> None:
    nodes = [node("a", 16276), node("b", 24268, model="A10"), node("c", 81920, model="A100")]
    asking = pod("p", 1000)
    assert one(nodes, asking).models == ()
    asking["spec"]["nodeSelector"] = {PRODUCT: "A10"}
    assert one(nodes, asking).models == ("A10",)
    nodes[1]["spec"] = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}
    assert one(nodes, asking).models == ("A10",)  # a cordon passes
    wanted = [{"matchExpressions": [{"key": PRODUCT, "operator": "NotIn", "values": ["T4"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    asking["spec"] |= {"nodeSelector": {}, "affinity": {"nodeAffinity": required}}
    assert one(nodes, asking).models == ("A10", "A100")


def test_a_taint_keeps_pods_off_its_models() -> None:
    nodes = [node("a", 16276), node("c", 81920, model="A100")]
    nodes[1]["spec"] = {"taints": [{"key": "team", "value": "big", "effect": "NoSchedule"}]}
    assert one(nodes, pod("p", 1000)).models == ("T4",)
    tolerant = pod("q", 1000)
    tolerant["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
    assert one(nodes, tolerant).models == ()
    assert one(nodes, pod("there", 1000, on="c", at=[[0]])).models == ()  # it is there, so it may be


def test_models_that_no_node_tells_restrict_nobody() -> None:
    nodes = [node("a", 16276, model=""), node("b", 16276, model="")]
    nodes[0]["metadata"]["labels"]["zone"] = "1"
    asking = pod("p", 1000)
    asking["spec"]["nodeSelector"] = {"zone": "1"}
    assert one(nodes, asking).models == ()


def test_pods_that_no_node_could_take_are_left_out_and_named() -> None:
    nowhere = pod("nowhere", 1000)
    nowhere["spec"]["nodeSelector"] = {"zone": "moon"}
    odd, large, greedy = pod("odd", "1.5"), pod("large", 50000), pod("greedy", 1000, cpu="65")
    found = recorded([node("a", 16276)], [pod("p", 1000), nowhere, odd, large, greedy])
    assert [p.name for p in found.pods] == ["default/p"]
    assert found.left_out == ["default/greedy", "default/large", "default/nowhere", "default/odd"]


def test_arrivals_count_from_the_first_pod_and_only_ends_that_are_known_are_told() -> None:
    ended = pod("ended", 1000, on="a", at=[[0]], age=500, phase="Succeeded")
    ended["status"] |= {
        "startTime": "2026-11-15T12:20:00Z",
        "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-11-15T12:25:30Z"}}}],
    }
    found = recorded([node("a", 16276)], [ended, pod("runs", 1000, on="a", at=[[0]], age=600)]).pods
    assert [(p.name, p.arrival, p.duration) for p in found] == [
        ("default/runs", 0.0, None),
        ("default/ended", 100.0, 330.0),
    ]


def test_a_cluster_without_gpushare_is_recorded_from_what_nvidias_plugin_sells() -> None:
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "81920"}
    plain = node("a", capacity={names.NVIDIA_GPU: "2"}, model="A100", labels=labels)
    found = recorded(
        [plain], [pod("p", counted={names.NVIDIA_GPU: 1}, on="a"), pod("waits", counted={names.NVIDIA_GPU: 2})]
    )
    assert found.nodes[0].gpus == (Gpu(81920, "A100"),) * 2
    assert [(p.gpus, p.gpu_memory_mib) for p in found.pods] == [(1, 0), (2, 0)]


def test_a_replica_of_a_gpu_is_its_part_of_the_memory() -> None:
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "16000", "nvidia.com/gpu.replicas": "4"}
    shared = node("a", capacity={names.NVIDIA_GPU: "8"}, labels=labels)
    found = recorded([shared], [pod("p", counted={names.NVIDIA_GPU: 1}, on="a")])
    assert len(found.nodes[0].gpus) == 2
    assert (found.pods[0].gpus, found.pods[0].gpu_memory_mib) == (1, 4000)


def test_slices_of_a_gpu_are_left_out() -> None:
    found = recorded([node("a", 16276)], [pod("p", counted={"nvidia.com/mig-1g.10gb": 1}, on="a")])
    assert (found.pods, found.left_out) == ((), ["default/p"])


def test_hashed_names_leave_nothing_of_the_names() -> None:
    nodes = [node("secret-node", 16276)]
    found = recorded(nodes, [pod("secret-pod", 1000, namespace="secret-team", on="secret-node", at=[[0]])])
    hidden = recording.hashed(found, b"salt")
    text = written(hidden.nodes, hidden.pods) + tables.of_nodes(hidden.nodes) + tables.of_pods(hidden.pods)
    assert "secret" not in text
    assert "T4" in text
    assert recording.hashed(found, b"salt") == hidden
    assert recording.hashed(found, b"other").nodes[0].name != hidden.nodes[0].name


def test_hashed_names_stand_in_an_order_of_their_own() -> None:
    nodes = [node(f"n-{number:02}", 1000 + number) for number in range(20)]
    found = recorded(nodes, [pod(f"p-{number:02}", 100 + number) for number in range(20)])
    hidden = recording.hashed(found, b"salt")
    assert [n.gpus for n in hidden.nodes] != [n.gpus for n in found.nodes]
    assert [p.gpu_memory_mib for p in hidden.pods] != [p.gpu_memory_mib for p in found.pods]


def documented() -> Recording:
    nodes, pods = worlds.documented()
    return recorded(nodes, [one for one in pods if one["metadata"]["name"] != "probe"])


def test_a_replay_reads_what_was_written(tmp_path: Path) -> None:
    found = documented()
    assert (len(found.nodes), len(found.pods)) == (4, 50)
    both = tmp_path / "cluster.json"
    both.write_text(written(found.nodes, found.pods))
    again = load.trace(str(both), "")
    assert (again.nodes, again.pods) == (found.nodes, found.pods)


def test_a_replay_reads_the_tables_too(tmp_path: Path) -> None:
    found = documented()
    again = through_tables(found, tmp_path)
    assert (again.nodes, again.pods) == (found.nodes, found.pods)


def through_tables(found: Recording, folder: Path) -> Trace:
    (folder / "nodes.csv").write_text(tables.of_nodes(found.nodes))
    (folder / "pods.csv").write_text(tables.of_pods(found.pods))
    return load.trace(str(folder / "pods.csv"), str(folder / "nodes.csv"))


def test_a_replay_reads_a_table_with_a_node_of_two_models(tmp_path: Path) -> None:
    mixed = node("a", 16276, 16276, 16276)
    worlds.publish(
        mixed,
        gpus=[
            {"i": i, "uuid": f"GPU-{i}", "total": 16276, "model": model} for i, model in enumerate(("T4", "", "A10"))
        ],
    )
    found = recorded([mixed], [pod("train", 1000)])
    assert [gpu.model for gpu in found.nodes[0].gpus] == ["T4", "", "A10"]
    assert through_tables(found, tmp_path).nodes == found.nodes
