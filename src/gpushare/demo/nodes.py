"""The real `gpushare node` on every simulated node: all of it but the driver, the command line and its signals.

They are tasks of this process, because the command line has no option that simulates GPUs (somebody could leave it on
by mistake) and five processes would take 45 MB each. Each has its own connections to the API server and, on a plugin
node, to kubelet's sockets. Each log line names its node.
"""

import asyncio
import contextlib
import contextvars
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from gpushare.demo import objects
from gpushare.demo.objects import Machine
from gpushare.demo.workload import DemoWorkload
from gpushare.devcluster.nodes import gpu_uuid
from gpushare.gpu import simulated
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.kubelet import paths
from gpushare.node import app
from gpushare.node.nvidia import app as nvidia_app
from gpushare.node.nvidia.config_source import Places
from gpushare.node.part import Part
from gpushare.obs import log

AGENT = "gpushare-node"  # their user agent at the API server
LONGEST_PATH = 103  # bytes of a socket's path: 107 on Linux, 103 elsewhere
LONGEST_SOCKET = "device-plugins/aliyungpushare-count.sock"
_node: contextvars.ContextVar[str] = contextvars.ContextVar("node", default="")


@contextlib.asynccontextmanager
async def running(
    access: Access, kubelets: Mapping[str, Path], gpus: Mapping[str, Simulated]
) -> AsyncIterator[dict[str, Part]]:
    """Runs them; the result is by name. A bug in one ends the block. `kubelets`: kubelet's folders, by `folders`.
    `gpus`: those of each node, by `all_gpus`."""
    nodes: dict[str, Part] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, machine in objects.NODES.items():
            api = await stack.enter_async_context(client.connect(access, agent=AGENT))
            nodes[name] = _made(name, machine, api, kubelets.get(name), gpus[name])
        group = await asyncio.TaskGroup().__aenter__()
        tasks = [group.create_task(_run(name, node)) for name, node in nodes.items()]
        try:
            yield nodes
        finally:
            for task in tasks:
                task.cancel()
            await group.__aexit__(None, None, None)  # an error of the block itself is raised unchanged


def _made(name: str, machine: Machine, api: client.Api, kubelet: Path | None, gpus: Simulated) -> Part:
    workload = DemoWorkload()
    gpus.workload, workload.part = workload.processes, _part(name, machine, api, kubelet, gpus, workload)
    return workload.part


def _part(
    name: str, machine: Machine, api: client.Api, kubelet: Path | None, gpus: Simulated, owners: DemoWorkload
) -> Part:
    if machine.pin == "nvidia":
        assert kubelet is not None
        return nvidia_app.Node(_selling(name, kubelet), api, gpus, owners)
    config = app.Config(name, "MiB", machine.pin, slots=machine.slots, nvidia_whole=machine.nvidia_whole)
    return app.Node(config if kubelet is None else config._replace(kubelet=str(kubelet)), api, gpus, owners)


def _selling(name: str, kubelet: Path) -> nvidia_app.Config:
    """Of a node that sells GPUs by count. Its file system begins with kubelet's folder."""
    kubelet.mkdir(exist_ok=True)
    file = kubelet / "config.yaml"
    file.write_text(objects.TIME_SLICED)
    socket = f"/{paths.DEVICE_PLUGINS}/{paths.KUBELET_SOCKET}"
    return nvidia_app.Config(name, {"kubelet-socket": socket}, places=Places(file=str(file)), root=str(kubelet))


def all_gpus() -> dict[str, Simulated]:
    """By node."""
    return {name: _gpus(name, machine) for name, machine in objects.NODES.items()}


def _gpus(name: str, machine: Machine) -> Simulated:
    return Simulated(simulated.device(i, gpu_uuid(name, i), mib) for i, mib in enumerate(machine.gpus))


async def _run(name: str, node: Part) -> None:
    _node.set(name)  # for this task and those it starts
    await node.run()


def log_to(file: Path) -> None:
    """Sends the whole log of this process there."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(log.Lines())
    handler.addFilter(_named)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _named(record: logging.LogRecord) -> bool:
    """Adds the name of the node to the line."""
    if name := _node.get():
        record.fields = {"node": name} | getattr(record, "fields", {})
    return True


@contextlib.contextmanager
def folders(folder: Path) -> Iterator[dict[str, Path]]:
    """kubelet's folder on each node that uses it: in `folder`, or in a shorter one if socket paths would be too
    long."""
    machines = objects.NODES.items()
    plugin = [name for name, machine in machines if machine.pin != "direct" or machine.nvidia_whole]
    longest = max((len(str(folder / name / LONGEST_SOCKET).encode()) for name in plugin), default=0)
    with contextlib.ExitStack() as stack:
        if longest > LONGEST_PATH:
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-", dir="/tmp"))
            folder = Path(short)
        yield {name: folder / name for name in plugin}
