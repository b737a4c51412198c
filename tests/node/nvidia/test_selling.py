"""The whole of `gpushare node --sell=gpus` over real sockets: what kubelet, the node object and people see."""

import asyncio
import os
import signal
import socket
from typing import Any

import grpc
import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.devcluster.kubelet.device_manager import Rejected
from gpushare.gpu.device import Xid
from gpushare.kube.auth import login
from gpushare.kubelet.pb import methods
from gpushare.node import part
from gpushare.node.nvidia import app
from gpushare.node.nvidia.cdi_file import CdiFile
from gpushare.obs import errors
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.nvidia.world import GPU, SHARED, Machine, sliced
from tests.support import embedded_objects
from tests.support.wait import eventually, until

# Whole GPUs and replicas


async def test_whole_gpus_are_sold_and_a_container_sees_its_own(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling() as node:
        await machine.offers(gpu=2)
        assert (machine.folder / "nvidia-gpu.sock").is_socket()
        seen = {(await machine.run_pod(name))["NVIDIA_VISIBLE_DEVICES"] for name in ("a", "b")}
        assert seen == {"GPU-0", "GPU-1"}
        await eventually(lambda: not node.not_ready())


async def test_replicas_let_several_pods_share_a_gpu_spread_evenly(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(4))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=8)
        seen = [(await machine.run_pod(f"pod-{i}"))["NVIDIA_VISIBLE_DEVICES"] for i in range(8)]
        assert sorted(seen) == ["GPU-0"] * 4 + ["GPU-1"] * 4
        assert sorted(seen[:2]) == ["GPU-0", "GPU-1"]


async def test_a_shared_resource_can_have_a_name_of_its_own(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(3, renamed=True))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu_shared=6)
        assert (machine.folder / "nvidia-gpu.shared.sock").is_socket()
        assert (await machine.run_pod("a", 2, SHARED))["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


async def test_two_of_a_shared_resource_are_refused_in_nvidias_words(machine: Machine) -> None:
    config = sliced(4).replace("renameByDefault: false", "failRequestsGreaterThanOne: true")
    (machine.configs / "default").write_text(config)
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=8)
        with pytest.raises(Rejected) as caught:
            await machine.run_pod("greedy", 2)
        assert str(caught.value) == (
            'Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "nvidia.com/gpu": '
            "invalid request: maximum request size for shared resources is 1; found 2, which is unexpected"
        )
        assert await machine.run_pod("modest")


async def test_bytes_that_are_no_message_get_a_sentence(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=2)
        async with grpc.aio.insecure_channel(f"unix:{machine.folder / 'nvidia-gpu.sock'}") as channel:
            for method in (methods.ALLOCATE, methods.PREFERRED):
                ask: Any = channel.unary_unary(methods.path(methods.DEVICE_PLUGIN, method))
                with pytest.raises(grpc.aio.AioRpcError, match="cannot read kubelet's message"):
                    await ask(b"\x0a\x7fnonsense")
            ask = channel.unary_unary(methods.path(methods.DEVICE_PLUGIN, methods.ALLOCATE))
            with pytest.raises(grpc.aio.AioRpcError, match="kubelet asks for no device"):
                await ask(b"\x0a\x00")


# Health


async def test_an_xid_withdraws_all_replicas_of_its_gpu_and_recovery_returns_them(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(4))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=8)
        machine.gpus.report(Xid("GPU-1", 79))
        await machine.offers(gpu=4)
        assert machine.manager.capacity() == {GPU: 8}
        await until(machine.server, lambda: world.health_of(machine.server) == [True, False])
        await machine.offers(gpu=8)


async def test_a_disabled_xid_counts_only_if_it_is_enabled_again(machine: Machine) -> None:
    config = machine.config(DP_DISABLE_HEALTHCHECKS="all", DP_ENABLE_HEALTHCHECKS="94")
    async with machine.kubelet(), machine.selling(config):
        await machine.offers(gpu=2)
        machine.gpus.report(Xid("GPU-0", 79))
        machine.gpus.report(Xid("GPU-1", 94))
        await machine.offers(gpu=1)
        assert (await machine.run_pod("a"))["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


async def test_a_lost_gpu_is_not_sold_and_a_new_one_is(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling(machine.config({"device-list-strategy": "cdi-cri"})):
        await machine.offers(gpu=2)
        machine.gpus.lose("GPU-1")
        await machine.offers(gpu=1)
        spec = machine.cdi / "k8s.device-plugin.nvidia.com-gpu.json"
        await eventually(lambda: "GPU-1" not in spec.read_text())
        machine.gpus.put(world.devices(1, 1, 1)[2])
        await machine.offers(gpu=2)
        assert "GPU-2" in spec.read_text()
    assert not spec.exists()


async def test_a_gpu_is_withdrawn_at_once_while_its_cdi_spec_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine.kubelet(), machine.selling(machine.config({"device-list-strategy": "cdi-cri"})):
        await machine.offers(gpu=2)
        monkeypatch.setattr(CdiFile, "keep", lambda *_: asyncio.Event().wait())  # nvidia-ctk hangs in the driver
        machine.gpus.report(Xid("GPU-1", 79))
        await machine.offers(gpu=1)


async def test_a_gpu_with_mig_is_sold_as_a_whole_as_nvidias_plugin_does(machine: Machine) -> None:
    machine.gpus.put(msgspec.structs.replace(world.devices(1)[0], mig=True))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=2)


# kubelet


async def test_a_kubelet_that_restarts_is_told_again_and_pods_keep_what_they_have(machine: Machine) -> None:
    async with machine.selling():
        async with machine.kubelet():
            await machine.offers(gpu=2)
            before = await machine.run_pod("a")
            saved = machine.manager.checkpoint()
        async with machine.kubelet(saved):
            await machine.offers(gpu=2)
            after = (await machine.run_pod("b"))["NVIDIA_VISIBLE_DEVICES"]
            assert {before["NVIDIA_VISIBLE_DEVICES"], after} == {"GPU-0", "GPU-1"}


async def test_without_a_kubelet_socket_it_serves_and_registers_nowhere(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling(machine.config({"kubelet-socket": ""})) as node:
        path = machine.folder / "nvidia-gpu.sock"
        await eventually(path.is_socket)
        await eventually(lambda: not node.not_ready())
        assert machine.manager.allocatable() == {}
        path.unlink()
        await eventually(path.is_socket)


# The node object


async def test_the_node_says_what_it_sells(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling():
        await until(machine.server, lambda: machine.sold() == [{"resource": GPU, "replicas": 1, "sharing": "none"}])
        found = world.said(machine.server)
        assert found is not None
        assert (found["pin"], found["sell"], found["unit"], found["state"]) == ("nvidia", "gpus", "MiB", "ready")
        assert [gpu["total"] for gpu in found["gpus"]] == list(world.SIZES)
        assert world.capacity(machine.server) == (None, None)


async def test_what_was_sold_as_shares_before_is_sold_no_more(machine: Machine) -> None:
    async with world.running(machine.server.url, machine.gpus) as shares:
        await until(machine.server, lambda: world.capacity(machine.server)[1] == "2")
        await shares.drain()
    async with machine.kubelet(), machine.selling():
        await until(machine.server, lambda: world.capacity(machine.server) == ("0", "0"))
        await until(machine.server, machine.sold)


async def test_beside_a_process_that_sells_shares_it_does_not_begin(machine: Machine) -> None:
    async with machine.kubelet(), world.running(machine.server.url, machine.gpus):
        await until(machine.server, lambda: world.capacity(machine.server)[1] == "2")
        error = await machine.refused()
    assert error.what == "gpu-a: its GPUs are sold as shares already"
    assert "gpushare sells aliyun.com/gpu-mem" in error.why
    assert machine.manager.allocatable() == {}


async def test_beside_aliyuns_plugin_it_does_not_begin(machine: Machine) -> None:
    amounts = {names.GPU_MEM: "30", names.GPU_COUNT: "2"}
    world.patch(machine.server, {"status": {"capacity": amounts, "allocatable": amounts}}, "status")
    async with machine.kubelet():
        assert "a device plugin sells aliyun.com/gpu-mem" in (await machine.refused()).why


async def test_pods_that_hold_shares_must_end_first(machine: Machine) -> None:
    async with world.running(machine.server.url, machine.gpus) as shares:
        await until(machine.server, lambda: world.capacity(machine.server)[1] == "2")
        world.bound(machine.server, "holder", 1000, on="GPU-0")
        await shares.drain()
    async with machine.kubelet():
        error = await machine.refused()
        assert error.what == "gpu-a: pods here hold shares of its GPUs"
        assert "default/holder" in error.why
        embedded_objects.set_status(machine.server, "holder", phase="Succeeded")
        async with machine.selling():
            await machine.offers(gpu=2)


@pytest.mark.parametrize("name", ["nvidia-gpu.sock", "nvidia-gpu.shared.sock", "aliyungpushare.sock"])
async def test_beside_another_plugins_socket_it_does_not_begin(machine: Machine, name: str) -> None:
    async with machine.kubelet():
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(machine.folder / name))
            listening.listen()
            error = await machine.refused()
    assert error.what == f"kubelet's folder {machine.folder} is in use by another device plugin"
    assert error.why.startswith(f"by process {os.getpid()} (")


# The end


async def test_at_the_end_the_node_drains_and_nothing_of_it_is_left(machine: Machine) -> None:
    config = machine.config({"device-list-strategy": "envvar,cdi-annotations"})
    async with machine.kubelet():
        work = asyncio.create_task(app.run(config, login.Access(server=machine.server.url), machine.gpus))
        await machine.offers(gpu=2)
        await until(machine.server, machine.sold)
        assert len(list(machine.cdi.iterdir())) == 1
        os.kill(os.getpid(), signal.SIGTERM)
        assert await work is signal.SIGTERM
        assert list(machine.cdi.iterdir()) == []
        assert not (machine.folder / "nvidia-gpu.sock").exists()
        assert (world.said(machine.server) or {})["state"] == "draining"


async def test_metrics_tell_the_gpus_and_their_health(machine: Machine) -> None:
    async with machine.kubelet(), machine.selling() as node:
        await eventually(lambda: not node.not_ready())
        await eventually(lambda: b"gpushare_gpu_healthy" in node.exporter.page()[0])
        shown = node.exporter.page()[0].decode()
        assert f'gpushare_gpu_healthy{{node="{world.NAME}",gpu="0",UUID="GPU-0"}} 1' in shown
        assert 'gpushare_node_writes_total{of="node"} 1.0' in shown


# The driver


async def test_a_driver_that_does_not_come_is_an_error_or_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "STUCK_SECONDS", 0.1)
    machine.gpus.fail(errors.not_asked("no driver", "because", "load it"))
    assert (await machine.refused()).what == "no driver"
    async with machine.kubelet(), machine.selling(machine.config(FAIL_ON_INIT_ERROR="false")) as node:
        await eventually(lambda: node.not_ready() == "starting: waiting for the driver: no driver")
        await asyncio.sleep(0.6)  # longer than it would wait otherwise
        assert node.dead() == ""
        machine.gpus.fail(None)
        await machine.offers(gpu=2)


async def test_gpus_whose_connections_nobody_knows_are_sold(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def links() -> list[Any]:
        raise UserError("the driver fails", "of links", "ask it")

    monkeypatch.setattr(machine.gpus, "links", links)
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=2)
        assert len((await machine.run_pod("a", 2))["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
