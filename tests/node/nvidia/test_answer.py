"""What a container gets, and which requests are refused, in the words of NVIDIA's plugin."""

import pytest
from google.protobuf.json_format import MessageToDict

from gpushare.kubelet.pb.deviceplugin_pb2 import ListAndWatchResponse
from gpushare.node.nvidia.rules import answer, devices
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.obs.errors import UserError
from tests.node.nvidia import made

GPUS = made.by_uuid(made.gpus(3))
NODES = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
KIND = "k8s.device-plugin.nvidia.com/gpu"


def given(*ids: str, **settings: object) -> dict[str, object]:
    response = answer.respond(made.set_to(**settings), GPUS, ids, NODES, "token")
    return dict(MessageToDict(response, preserving_proto_field_name=True))


def test_by_default_the_environment_names_the_gpus() -> None:
    assert given("GPU-1", "GPU-0") == {"envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0"}}


def test_a_gpu_with_two_replicas_is_named_once() -> None:
    assert given("GPU-1::0", "GPU-0::3", "GPU-1::2", replicas=4) == {"envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0"}}


def test_a_client_of_mps_gets_the_daemons_pipes_and_the_nodes_shared_memory() -> None:
    assert given("GPU-1::0", replicas=4, mps=True) == {
        "envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"},
        "mounts": [
            {"host_path": "/tmp/nvidia-mps", "container_path": "/mps/nvidia.com/gpu/pipe"},
            {"host_path": "/dev/shm", "container_path": "/dev/shm"},
        ],
    }


def test_gpus_are_named_by_index_on_request() -> None:
    assert given("GPU-2::0", "GPU-2::1", replicas=2, by_index=True) == {"envs": {"NVIDIA_VISIBLE_DEVICES": "2"}}


def test_volume_mounts_name_them_where_a_tenant_cannot() -> None:
    assert given("GPU-0", "GPU-1", strategies=("volume-mounts",)) == {
        "envs": {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
        "mounts": [
            {"host_path": "/dev/null", "container_path": f"/var/run/nvidia-container-devices/{gpu}"}
            for gpu in ("GPU-0", "GPU-1")
        ],
    }


def test_cdi_annotations_name_devices_of_the_spec() -> None:
    key = "cdi.k8s.io/nvidia-device-plugin_token"
    both = {"annotations": {key: f"{KIND}=GPU-0,{KIND}=GPU-1"}}
    assert given("GPU-0", "GPU-1", strategies=("cdi-annotations",)) == both
    other = given("GPU-0", strategies=("cdi-annotations",), cdi_prefix="x.io/", by_index=True)
    assert other == {"annotations": {"x.io/nvidia-device-plugin_token": f"{KIND}=0"}}


def test_the_part_of_an_annotation_that_kubernetes_limits_is_short_enough() -> None:
    uuid4 = "3d9c3b8e-4f1a-4f0e-9c53-0a6f5a3f7c11"
    assert len(f"{answer.ANNOTATION}{uuid4}") <= 63


def test_cdi_devices_go_to_the_runtime_through_kubelet() -> None:
    assert given("GPU-0", strategies=("cdi-cri",)) == {"cdi_devices": [{"name": f"{KIND}=GPU-0"}]}


def test_several_ways_are_answered_together() -> None:
    found = given("GPU-0", strategies=("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"))
    assert set(found) == {"envs", "mounts", "annotations", "cdi_devices"}


def test_device_nodes_are_passed_if_they_are_wanted_and_the_runtime_does_not_add_them() -> None:
    paths = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia6"]
    with_root = given("GPU-2", pass_device_specs=True, dev_root="/run/nvidia/driver")
    assert with_root["devices"] == [
        {"container_path": path, "host_path": f"/run/nvidia/driver{path}", "permissions": "rw"} for path in paths
    ]
    assert given("GPU-2", pass_device_specs=True)["devices"] == [
        {"container_path": path, "host_path": path, "permissions": "rw"} for path in paths
    ]
    assert "devices" not in given("GPU-2", pass_device_specs=True, strategies=("cdi-cri", "cdi-annotations"))


@pytest.mark.parametrize(
    ("ids", "settings", "says"),
    [
        (["GPU-0"], {}, ""),
        (["GPU-0", "GPU-1"], {"most_one": True}, ""),  # they are not shared
        (["GPU-0::0", "GPU-0::1"], {"replicas": 4}, ""),
        (["GPU-0::0"], {"replicas": 4, "most_one": True}, ""),
        (
            ["GPU-0::0", "GPU-1::1"],
            {"replicas": 4, "most_one": True},
            "invalid request: maximum request size for shared resources is 1; found 2",
        ),
        (["GPU-9"], {}, "unknown device: GPU-9"),
        (["GPU-0::0"], {}, "unknown device: GPU-0::0"),
        (["GPU-0"], {"replicas": 2}, "unknown device: GPU-0"),
        (["GPU-0::2"], {"replicas": 2}, "unknown device: GPU-0::2"),
        (["GPU-0::01"], {"replicas": 2}, "unknown device: GPU-0::01"),
        (["GPU-0::"], {"replicas": 2}, "unknown device: GPU-0::"),
        ([f"GPU-0::{'9' * 5000}"], {"replicas": 2}, f"unknown device: GPU-0::{'9' * 5000}"),
    ],
)
def test_a_refusal_has_nvidias_words(ids: list[str], settings: dict[str, object], says: str) -> None:
    why = answer.refusal(made.set_to(**settings), GPUS, ids)
    assert why == (f'invalid allocation request for "nvidia.com/gpu": {says}' if says else "")


def test_a_gpu_without_a_device_node_is_refused_where_nodes_are_passed() -> None:
    nameless = {"GPU-0": Gpu("GPU-0", 0)}
    assert "the driver does not say which /dev/nvidiaN GPU-0 is" in answer.refusal(
        made.set_to(pass_device_specs=True), nameless, ["GPU-0"]
    )
    assert not answer.refusal(made.DEFAULT, nameless, ["GPU-0"])


# The list


def listed(message: bytes) -> list[tuple[str, str, list[int]]]:
    found = ListAndWatchResponse.FromString(message).devices
    return [(one.ID, one.health, [node.ID for node in one.topology.nodes]) for one in found]


def test_whole_gpus_are_listed_by_uuid_with_their_numa_node() -> None:
    gpus = made.gpus(3, numa=[0, 1], unhealthy=[1])
    assert listed(devices.message(gpus, 1)) == [
        ("GPU-0", "Healthy", [0]), ("GPU-1", "Unhealthy", [1]), ("GPU-2", "Healthy", []),
    ]  # fmt: skip


def test_all_replicas_of_an_unhealthy_gpu_are_unhealthy() -> None:
    found = listed(devices.message(made.gpus(2, numa=[0, 1], unhealthy=[1]), 3))
    assert found == [
        (f"GPU-{gpu}::{n}", health, [gpu]) for gpu, health in ((0, "Healthy"), (1, "Unhealthy")) for n in range(3)
    ]


def test_more_replicas_than_kubelet_can_be_told_are_refused_with_the_numbers() -> None:
    uuid = "GPU-8c1f0d0e-4f1a-4f0e-9c53-0a6f5a3f7c11"
    eight = [Gpu(f"{uuid[:-1]}{i}", i, i, i % 2, healthy=False) for i in range(8)]
    with pytest.raises(UserError) as caught:
        devices.check(eight, made.sliced(10_000))
    assert "8 GPUs with 10,000 replicas each are 80,000 devices" in str(caught.value)
    assert "4 MiB" in caught.value.why
    most = int(caught.value.way.split()[1])
    devices.check(eight, made.sliced(most))
    assert 4_000_000 < len(devices.message(eight, most)) <= 4 << 20
    devices.check([], made.sliced(10**9))
