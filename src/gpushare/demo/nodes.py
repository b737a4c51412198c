"""The real `gpushare node` on every simulated node: all of it but the driver, the command line and its signals.

They are tasks of this process, because the command line has no option that simulates GPUs (somebody could leave it on
by mistake) and four processes would take 45 MB each. Each has its own connections to the API server and, on a plugin
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
from gpushare.devcluster.nodes import gpu_uuid
from gpushare.gpu import simulated
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.node.app import Config, Node
from gpushare.obs import log

AGENT = "gpushare-node"  # their user agent at the API server
LONGEST_PATH = 103  # bytes of a socket's path: 107 on Linux, 103 elsewhere
LONGEST_SOCKET = "device-plugins/aliyungpushare-count.sock"
_node: contextvars.ContextVar[str] = contextvars.ContextVar("node", default="")


@contextlib.asynccontextmanager
async def running(access: Access, kubelets: Mapping[str, Path]) -> AsyncIterator[dict[str, Node]]:
    """Runs them; the result is by name. A bug in one ends the block. `kubelets`: kubelet's folder on plugin nodes."""
    nodes: dict[str, Node] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, machine in objects.NODES.items():
            api = await stack.enter_async_context(client.connect(access, agent=AGENT))
            config = Config(name, "MiB", machine.pin)
            if name in kubelets:
                config = config._replace(kubelet=str(kubelets[name]))
            nodes[name] = Node(config, api, _gpus(name, machine))
        group = await asyncio.TaskGroup().__aenter__()
        tasks = [group.create_task(_run(name, node)) for name, node in nodes.items()]
        try:
            yield nodes
        finally:
            for task in tasks:
                task.cancel()
            await group.__aexit__(None, None, None)  # an error of the block itself is raised unchanged


def _gpus(name: str, machine: Machine) -> Simulated:
    return Simulated(simulated.device(i, gpu_uuid(name, i), mib) for i, mib in enumerate(machine.gpus))


async def _run(name: str, node: Node) -> None:
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
    """kubelet's folder on each plugin node: in `folder`, or in a shorter one if socket paths would be too long."""
    plugin = [name for name, machine in objects.NODES.items() if machine.pin == "plugin"]
    longest = max((len(str(folder / name / LONGEST_SOCKET).encode()) for name in plugin), default=0)
    with contextlib.ExitStack() as stack:
        if longest > LONGEST_PATH:
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-", dir="/tmp"))
            folder = Path(short)
        yield {name: folder / name for name in plugin}
