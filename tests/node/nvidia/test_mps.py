"""MPS replicas are sold only while the daemon works and has divided the GPUs; what cannot be served is refused."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import Status
from gpushare.gpu.simulated import device
from gpushare.kubelet.pb.deviceplugin_pb2 import ListAndWatchResponse
from gpushare.node import mps_daemon
from gpushare.node.nvidia.rules import devices, settings
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.nvidia import made
from tests.node.nvidia.world import Machine
from tests.support.wait import eventually, until

CONFIG = "sharing: {mps: {resources: [{name: gpu, replicas: %d}]}}"


def report(folder: Path, state: Any = "up", why: str = "", replicas: int = 1) -> None:
    now = time.time()
    (folder / status.FILE).write_bytes(status.write(Status(1, state, why, now, 1, now, replicas)))


async def test_replicas_are_healthy_only_while_the_daemon_divides_gpus_by_as_many(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_daemon, "LOOK_SECONDS", 0.01)
    (machine.configs / "default").write_text(CONFIG % 4)
    config = machine.config()._replace(mps_status=str(tmp_path))
    async with machine.kubelet(), machine.selling(config):
        await until(machine.server, lambda: (world.said(machine.server) or {}).get("sold"))
        assert (world.said(machine.server) or {})["sold"] == [
            {"resource": "nvidia.com/gpu", "replicas": 4, "sharing": "mps"}
        ]
        await eventually(lambda: any("gpushare mps has not reported" in text for *_, text in told(machine)))
        report(tmp_path)
        await eventually(lambda: any("does not divide each GPU by 4 yet" in text for *_, text in told(machine)))
        assert sum(machine.manager.allocatable().values()) == 0
        report(tmp_path, replicas=4)
        await machine.offers(gpu=8)
        env = await machine.run_pod("client")
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        report(tmp_path, "down", "it hangs", 4)
        await eventually(lambda: sum(machine.manager.allocatable().values()) == 0)
        await eventually(
            lambda: ("MpsDown", world.NAME, "no new pod gets an MPS share here: it hangs") in told(machine)
        )


def told(machine: Machine) -> list[tuple[str, str, str]]:
    return world.warnings(machine.server)


async def test_without_a_status_folder_mps_is_refused_with_the_option(machine: Machine) -> None:
    (machine.configs / "default").write_text(CONFIG % 4)
    async with machine.kubelet():
        error = await machine.refused()
    assert error.what == "config: sharing.mps cannot be served without --mps-status"
    assert "--mps-status=/run/nvidia/mps" in error.way


def test_gpus_that_nobody_can_use_now_are_listed_as_unhealthy() -> None:
    there = devices.gpus([device(0, "GPU-0", 100)], {}, {}, served=False)
    listed = ListAndWatchResponse.FromString(devices.message(there, 2)).devices
    assert [(one.ID, one.health) for one in listed] == [("GPU-0::0", "Unhealthy"), ("GPU-0::1", "Unhealthy")]


def test_more_replicas_than_a_gpu_serves_clients_are_refused() -> None:
    new, old = device(0, "GPU-0", 100), device(1, "GPU-1", 100)
    volta = type(old)(1, "GPU-1", 1, old.bus, old.name, 100, "7.0")
    settings.refuse_mps(made.set_to(replicas=48, mps=True), [new], status="x")
    settings.refuse_mps(made.set_to(replicas=16, mps=True), [new, volta], status="x")
    settings.refuse_mps(made.set_to(replicas=99), [new, volta], status="")
    with pytest.raises(UserError, match=r"17 replicas cannot be served: a GPU here serves at most 16 .* is 7\.0"):
        settings.refuse_mps(made.set_to(replicas=17, mps=True), [new, volta], status="x")
    with pytest.raises(UserError, match="49 replicas"):
        settings.refuse_mps(made.set_to(replicas=49, mps=True), [new], status="x")


def test_mps_beside_mig_is_refused() -> None:
    sliced = device(0, "GPU-0", 100)
    with_mig = type(sliced)(0, "GPU-0", 0, sliced.bus, sliced.name, 100, "8.0", mig=True)
    with pytest.raises(UserError, match="MIG is enabled on GPU-0"):
        settings.refuse_mps(made.set_to(replicas=2, mps=True), [with_mig], status="x")
