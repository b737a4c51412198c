"""`make cluster`: the cluster of these tests to play with, until Ctrl-C. Real Kubernetes, one real node, no real GPUs.

The cluster has a network of its own; what is opened before it is entered is a door into it: connections to a port of
this machine's loopback are passed on to the API server.
"""

import asyncio
import contextlib
import shlex
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from gpushare.obs.errors import UserError
from tests.e2e.harness import binaries, images
from tests.e2e.harness.cluster import ADMIN, NODE, ROOT, URL, Cluster, Failed, NotReady, say
from tests.e2e.harness.installation import GUARD, OWN_NODE, PIN, Installation
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.processes import Ended

GPUS = [16276, 16276, 40536, 40536]
COMPONENT = ("node-ds.yaml",)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
READY = """
Kubernetes {version} with one real node, "{node}". Its {count} GPUs are not real, containers and all else are.
It stays up until Ctrl-C. In another terminal:
  export KUBECONFIG={kubeconfig}
  export PATH={path}:$PATH
  kubectl apply -f {examples}/01-deployment.yaml
  kubectl rollout status deployment/web
  kubectl exec deployment/web -- env | grep GPU
  kubectl inspect gpushare -w
There is no registry: pods use the image that examples/ name (busybox here), or {small}.
Logs: {logs}"""


def main() -> int:
    try:
        binaries.check()
        binaries.ensure_all(say)
        say("making the image of gpushare, unless nothing has changed")
        images.product()
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code
    with socket.create_server(("127.0.0.1", 0)) as door:
        try:
            asyncio.run(_play(door))
        except (NotReady, Failed, Ended) as error:
            print(f"error: the cluster did not start\n  why: {error}\n  try: make e2e ARGS=-x", file=sys.stderr)
            return 1
    return 0


async def _play(door: socket.socket) -> None:
    cluster = Cluster()
    _cancelled_by_signals()
    with contextlib.suppress(asyncio.CancelledError):
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(cluster.stop)
            say("starting the control plane")
            await cluster.start()
            node = Node(cluster)
            stack.push_async_callback(node.end)
            say("starting containerd and kubelet")
            await node.start()
            say("installing gpushare")
            await stack.enter_async_context(cluster.scheduler())
            await Installation(node, COMPONENT, (PIN, GUARD, OWN_NODE), "MiB").start(GPUS)  # it ends with the node
            await stack.enter_async_context(await asyncio.start_server(_pass_on, sock=door))
            print(_told(cluster, door.getsockname()[1]), flush=True)
            await asyncio.get_running_loop().create_future()  # for ever


def _cancelled_by_signals() -> None:
    """The first ends this task, which ends all that it has started; for that it is left in peace."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        say("ending it")
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, end)


def _told(cluster: Cluster, port: int) -> str:
    kubeconfig = cluster.kubeconfig("play", cluster.tokens[ADMIN], f"https://127.0.0.1:{port}")
    path = f"{shlex.quote(str(Path(sys.executable).parent))}:{shlex.quote(str(binaries.folder()))}"
    return READY.format(
        version=binaries.VERSION, node=NODE, count=len(GPUS), kubeconfig=shlex.quote(str(kubeconfig)), path=path,
        examples=shlex.quote(str(ROOT / "examples")), small=images.SMALL, logs=cluster.logs,
    )  # fmt: skip


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection from outside, to the API server and back."""
    inside = urlsplit(URL)
    with contextlib.suppress(OSError):
        from_inside, to_inside = await asyncio.open_connection(inside.hostname, inside.port)
        await asyncio.gather(_copy(reader, to_inside), _copy(from_inside, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    sys.exit(main())
