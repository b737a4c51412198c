"""`gpushare node` on a node of the embedded cluster: what it publishes, and that it stays true."""

from pathlib import Path

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated, device
from gpushare.kubelet import paths
from gpushare.node.app import Config
from gpushare.obs import errors
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.world import CONFIG, bound, capacity, health_of, refusal, running, said, warnings
from tests.support import embedded_objects
from tests.support.wait import eventually, until

FULL = ("27454", "2")


async def test_it_publishes_the_gpus_of_its_node(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == FULL)
        assert said(server) == {
            "v": 1,
            "unit": "MiB",
            "pin": "direct",
            "state": "ready",
            "gpus": [
                {"i": 0, "uuid": "GPU-0", "model": "simulated GPU", "total": 16276, "ok": True, "why": ""},
                {"i": 1, "uuid": "GPU-1", "model": "simulated GPU", "total": 11178, "ok": True, "why": ""},
            ],
        }
        assert await eventually(lambda: node.not_ready() == "")
        assert node.dead() == ""
    assert world.shown(server)["status"]["capacity"]["cpu"] == "64"
    # A capacity without the annotation would be taken for a node of Aliyun's plugin.
    assert [write.path for write in server.audit] == ["/api/v1/nodes/gpu-a", "/api/v1/nodes/gpu-a/status"]


@pytest.mark.parametrize(
    ("lost", "mended"),
    [
        ({"status": {"capacity": {names.GPU_MEM: None, names.GPU_COUNT: None}}}, "status"),
        ({"status": {"capacity": {names.GPU_MEM: "0"}}}, "status"),
        ({"metadata": {"annotations": {names.NODE_GPUS: None}}}, ""),
        ({"metadata": {"annotations": {names.NODE_GPUS: '{"v": 1, "gpus": []}'}}}, ""),
    ],
)
async def test_what_others_wipe_is_written_again(
    server: ApiServer, gpus: Simulated, lost: world.Object, mended: str
) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server) == FULL)
        before = said(server)
        world.patch(server, lost, mended)
        await until(server, lambda: capacity(server) == FULL and said(server) == before)


async def test_a_new_node_object_is_published_again(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == FULL)
        server.registry.delete(embedded_objects.NODES, "", world.NAME, {})
        await eventually(lambda: node.not_ready() != "")
        embedded_objects.create(server, world.node())
        await until(server, lambda: capacity(server) == FULL)


async def test_an_unhealthy_gpu_withdraws_what_nobody_holds_and_comes_back(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server) == FULL)
        bound(server, "holds", 6000, on="GPU-0")
        bound(server, "other", 5000, on="GPU-1")
        gpus.report(Xid("GPU-0", 79))
        await until(server, lambda: capacity(server) == (str(11178 + 6000), "2"))
        assert health_of(server) == [False, True]
        assert "79" in world.published(server).gpus[0].why
        await until(server, lambda: capacity(server) == FULL)
        assert health_of(server) == [True, True]


async def test_what_ends_on_an_unhealthy_gpu_is_withdrawn_too(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server) == FULL)
        bound(server, "holds", 6000, on="GPU-0")
        gpus.put(msgspec.structs.replace(world.devices(16276)[0], fault="does not answer"))
        await until(server, lambda: capacity(server) == (str(11178 + 6000), "2"))
        embedded_objects.delete(server, "holds")
        await until(server, lambda: capacity(server) == ("11178", "1"))


async def test_errors_of_an_application_are_not_the_gpus(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == FULL)
        gpus.report(Xid("GPU-0", 31))
        gpus.report(Xid("GPU-1", 48))
        await until(server, lambda: health_of(server) == [True, False])
        assert "GPU-0" not in node.gpus.unhealthy


async def test_a_lost_gpu_stays_as_long_as_it_is_known_and_a_new_one_is_added(
    server: ApiServer, gpus: Simulated
) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server) == FULL)
        bound(server, "holds", 6000, on="GPU-0")
        gpus.lose("GPU-0")
        gpus.put(device(0, "GPU-new", 20000))  # the driver gives it the number that is free
        await until(server, lambda: capacity(server) == (str(11178 + 6000 + 20000), "3"))
        assert [(gpu.index, gpu.uuid, gpu.healthy) for gpu in world.published(server).gpus] == [
            (0, "GPU-0", False),
            (1, "GPU-1", True),
            (2, "GPU-new", True),
        ]


async def test_a_predecessors_lost_gpu_is_counted_while_somebody_holds_it(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server) == FULL)
    bound(server, "holds", 6000, on="GPU-0")
    after_a_reboot = Simulated([device(0, "GPU-1", 11178)])
    async with running(server.url, after_a_reboot):
        await until(server, lambda: capacity(server) == (str(11178 + 6000), "2"))
        assert [(gpu.index, gpu.uuid) for gpu in world.published(server).gpus] == [(0, "GPU-0"), (1, "GPU-1")]
        embedded_objects.delete(server, "holds")
        await until(server, lambda: capacity(server) == ("11178", "1"))
        await until(server, lambda: [(g.index, g.uuid) for g in world.published(server).gpus] == [(0, "GPU-1")])


async def test_a_driver_that_fails_makes_its_gpus_unhealthy_until_it_answers(
    server: ApiServer, gpus: Simulated
) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == FULL)
        gpus.fail(
            UserError("the driver does not answer", "nvmlDeviceGetCount: unknown error", "nvidia-smi on the node")
        )
        await until(server, lambda: capacity(server) == ("0", "0"))
        await eventually(lambda: node.not_ready() == "the driver does not answer")
        gpus.fail(None)
        await until(server, lambda: capacity(server) == FULL)


async def test_a_driver_that_is_never_there_ends_it_with_the_way_out(server: ApiServer, gpus: Simulated) -> None:
    gpus.fail(
        errors.not_asked("libnvidia-ml.so.1 not found", "no NVIDIA driver in this container", "nvidia-smi on the node")
    )
    error = await refusal(server.url, gpus, says="waiting for the driver: libnvidia-ml.so.1 not found")
    assert isinstance(error, UserError)
    assert (error.what, error.code) == ("libnvidia-ml.so.1 not found", 3)
    assert said(server) is None


async def test_gib_are_rounded_down_after_what_is_kept_back(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus, Config(world.NAME, "GiB", "direct", reserve_mib=500, port=0)):
        await until(server, lambda: capacity(server) == (str(15 + 10), "2"))
        found = said(server)
        assert found is not None
        assert (found["unit"], [gpu["total"] for gpu in found["gpus"]]) == ("GiB", [15, 10])


async def test_it_does_not_start_beside_nvidias_plugin(server: ApiServer, gpus: Simulated) -> None:
    world.patch(server, {"status": {"capacity": {names.NVIDIA_GPU: "2"}}}, "status")
    error = await refusal(server.url, gpus)
    assert isinstance(error, UserError)
    assert error.what == "gpu-a: NVIDIA's device plugin gives out the same GPUs"
    assert "kubectl label node gpu-a nvidia.com/gpu.deploy.device-plugin=false" in error.way
    assert said(server) is None


def sold(server: ApiServer) -> tuple[str | None, str | None]:
    has = world.shown(server)["status"]["capacity"]
    return has.get(names.MPS_GPU), has.get(names.NVIDIA_GPU)


async def test_slots_and_nvidias_name_are_sold_while_the_flags_are_there(
    server: ApiServer, gpus: Simulated, tmp_path: Path
) -> None:
    selling = CONFIG._replace(slots=10, nvidia_whole=True, kubelet=str(tmp_path))
    (tmp_path / paths.DEVICE_PLUGINS).mkdir(parents=True)
    async with running(server.url, gpus, selling):
        await until(server, lambda: sold(server) == ("20", "2"))
        assert (world.published(server).slots, world.published(server).nvidia_whole) == (10, True)
    async with running(server.url, gpus):  # without the flags
        await until(server, lambda: sold(server) == ("0", "0"))
        await until(server, lambda: not world.published(server).slots and not world.published(server).nvidia_whole)
        assert capacity(server) == FULL


async def test_what_a_device_plugin_cannot_serve_is_refused_at_the_start(server: ApiServer, gpus: Simulated) -> None:
    error = await refusal(server.url, gpus, CONFIG._replace(pin="auto", slots=10))
    assert isinstance(error, UserError)
    assert error.what == "gpu-a: --mps-slots=10 cannot be served by a device plugin"
    assert said(server) is None


async def test_a_name_that_no_node_has_is_said(server: ApiServer, gpus: Simulated) -> None:
    error = await refusal(server.url, gpus, CONFIG._replace(node="gpu-x"), says='waiting for node "gpu-x"')
    assert isinstance(error, UserError)
    assert error.what == 'no node "gpu-x"'


async def test_events_that_are_still_queued_leave_before_the_end(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server)[0])
        for number in range(5):
            node.recorder.record(
                kind="Node", namespace="", name=world.NAME, uid=world.NAME,
                type="Warning", reason="Test", message=f"event {number}",
            )  # fmt: skip
        await node.drain()
        sent = {text for reason, _, text in warnings(server) if reason == "Test"}
        assert sent == {f"event {number}" for number in range(5)}
