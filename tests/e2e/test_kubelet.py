"""The real node does what real nodes do, and leaves nothing behind on the machine it runs on."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.harness import containers, images, processes
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.containers import Machine
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.processes import Processes
from tests.support import api_client
from tests.support.objects import Object

GONE_SECONDS = 10.0


@pytest.fixture
async def pod(cluster: Cluster, node: Node, api: api_client.Api) -> list[str]:
    """kubectl's words for a pod that runs."""
    async with cluster.scheduler():
        await api.create(api.pods, _pod("sleeper"))
        where = ["--namespace", api.namespace]
        await cluster.kubectl("wait", *where, "--for=condition=Ready", "pod/sleeper", "--timeout=60s")
    return [*where, "sleeper"]


def _pod(name: str) -> Object:
    command = ["sh", "-c", "echo up; sleep infinity"]
    container = {"name": "main", "image": images.EXAMPLES, "command": command}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_a_pod_runs_and_can_be_looked_into(cluster: Cluster, pod: list[str]) -> None:
    assert await cluster.kubectl("logs", *pod) == "up\n"
    assert await cluster.kubectl("exec", *pod, "--", "hostname") == "sleeper\n"
    assert "10.88." in await cluster.kubectl("exec", *pod, "--", "ip", "address")


async def test_a_restart_of_kubelet_leaves_its_pods_alone(cluster: Cluster, node: Node, pod: list[str]) -> None:
    started = await cluster.kubectl("exec", *pod, "--", "stat", "-c", "%Z", "/proc/1")
    await node.restart_kubelet()
    assert await cluster.kubectl("exec", *pod, "--", "stat", "-c", "%Z", "/proc/1") == started


async def test_nothing_of_a_machine_is_left_when_it_has_ended(tmp_path: Path) -> None:
    for _ in range(2):  # the second finds no trace of the first
        machine = Machine(tmp_path / "node", Processes(tmp_path, tmp_path / "state.json"), images.SMALL)
        await machine.start()
        first = machine.first
        await machine.stop()
        assert _traces(machine) == []
        assert processes.start_time(first) == 0


def test_a_killed_run_takes_its_machine_with_it_and_the_next_removes_the_rest(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 3
        run.kill()
    ends = time.monotonic() + GONE_SECONDS
    while any(map(processes.start_time, pids)) and time.monotonic() < ends:
        time.sleep(0.02)
    assert [pid for pid in pids if processes.start_time(pid)] == []
    next_one = Machine(tmp_path / "node", Processes(tmp_path, tmp_path / "state.json"), images.SMALL)
    asyncio.run(next_one.stop())
    assert _traces(next_one) == []


KILLED = """
import asyncio, pathlib, sys, time
from tests.e2e.harness import containers, processes

async def main():
    place = pathlib.Path(sys.argv[1])
    machine = containers.Machine(place / "node", processes.Processes(place, place / "state.json"), "none")
    await machine.start()
    print(machine.first, *(process.popen.pid for process in machine.processes.running), flush=True)

asyncio.run(main())
time.sleep(60)
"""


def _traces(machine: Machine) -> list[str]:
    """Mounts, cgroups and files."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(machine.folder) in line]
    cgroups = [str(folder) for folder in containers.hierarchies() if (folder / machine.cgroup).exists()]
    return [*mounts, *cgroups, *map(str, machine.folder.glob("*"))]
