"""Who is told about a lost daemon, and into how many parts GPUs are divided, as node and pods say it."""

from typing import Any

from gpushare.core.facts import names, objects
from gpushare.mps.cluster import NodeSight, PodSight
from gpushare.mps.notices import Notices
from tests.mps.world import pod
from tests.support import builders

MPS = [{"resource": "nvidia.com/gpu", "replicas": 4, "sharing": "mps"}]


class Recorder:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str, str]] = []

    def record(self, *, kind: str, name: str, type: str, reason: str, message: str, **more: Any) -> None:
        self.said.append((kind, name, f"{type} {reason}", message))


def test_replicas_by_mps_divide_gpus_and_others_do_not() -> None:
    sight, changes = NodeSight("n"), []
    sight.changed = lambda: changes.append(sight.replicas)
    for sold in (MPS, MPS, [{**MPS[0], "sharing": "time-slicing"}], [{**MPS[0], "replicas": 2}]):
        sight.upsert(builders.node(8, pin="nvidia", sold=sold))
    sight.upsert(builders.node(8, slots=10))
    sight.upsert(objects.Node())
    assert changes == [4, 1, 2, 1]


def test_clients_are_running_pods_that_ask_for_mps() -> None:
    sight = PodSight()
    for made in (
        pod("client", names.MPS_GPU), pod("memory", names.GPU_MEM), pod("waits", names.MPS_GPU, "Pending"),
        pod("done", names.MPS_GPU, "Succeeded"), pod("cpu"), pod("replica", "nvidia.com/gpu"),
    ):  # fmt: skip
        sight.upsert(made)
    node = NodeSight("n")
    assert [one.metadata.name for one in sight.clients(node.resources)] == ["client"]
    node.upsert(builders.node(8, pin="nvidia", sold=MPS))
    assert [one.metadata.name for one in sight.clients(node.resources)] == ["client", "replica"]
    sight.remove(pod("client"))
    sight.relisted({"uid-memory"})
    assert list(sight.pods) == ["uid-memory"]


def test_a_pod_with_gpu_memory_that_mounts_the_pipes_is_a_client_too() -> None:
    sight, made = PodSight(), pod("memory", names.GPU_MEM)
    assert made.spec.containers is not None
    made.spec.containers[0].volume_mounts = [objects.VolumeMount(f"{names.MPS_PIPE_FOLDER}/", "pipes")]
    made.spec.volumes = [objects.Volume("pipes", objects.HostPath(names.MPS_PIPE_FOLDER))]
    sight.upsert(made)
    tool = pod("tool")  # it asks for no GPU
    assert tool.spec.containers is not None
    tool.spec.containers[0].volume_mounts, tool.spec.volumes = (
        made.spec.containers[0].volume_mounts,
        made.spec.volumes,
    )
    sight.upsert(tool)
    assert [one.metadata.name for one in sight.clients(NodeSight("n").resources)] == ["memory"]


def test_pods_and_node_are_told_once_and_that_it_works_again() -> None:
    recorder = Recorder()
    notices = Notices(recorder, "n", lambda: [pod("client", names.MPS_GPU)])  # type: ignore[arg-type]
    notices.works()
    assert recorder.said == [], "nobody was told that it does not work"
    notices.lost("the MPS daemon was ended by signal 9")
    notices.works()
    assert recorder.said == [
        ("Pod", "client", "Warning MpsDaemonLost",
         "Its CUDA programs have lost the GPU and must be restarted: the MPS daemon was ended by signal 9"),
        ("Node", "n", "Warning MpsDaemonLost", "the MPS daemon was ended by signal 9; pods that used it: 1"),
        ("Node", "n", "Normal MpsDaemonWorks", "the MPS daemon serves clients again"),
    ]  # fmt: skip
