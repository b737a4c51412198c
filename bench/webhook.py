"""The webhook over real TLS: what one pod of 6 KB costs it, and how much memory it has.

It runs as a process of its own, with a certificate of its own, against an API server in this process with 500
GPU nodes. One client asks on one connection, as API servers do.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from bench import world
from bench.process import cpu_seconds, resident_mb_peak
from bench.result import Result
from bench.yardstick import HERE
from gpushare.core.admission import guard
from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.webhook import rules
from tests.support import wait

CALLS = 2000
NODES = 500
SIZE = 6 << 10  # bytes of a pod
READY_SECONDS = 20.0


def run() -> Iterator[Result]:
    spent, resident = asyncio.run(_measure())
    for path, milliseconds in spent.items():
        yield Result(f"webhook over TLS, a pod of 6 KB, {path}", milliseconds, "ms", 1.0, of=fmean)
    yield Result(f"webhook, {NODES} nodes: resident at most", resident, "MB", 60.0)


async def _measure() -> tuple[dict[str, float], float]:
    async with ApiServer(audit=False) as server:
        server.load({"apiVersion": "v1", "kind": "Node", **world.node(number)} for number in range(NODES))
        server.load([{"kind": "Secret", "metadata": {"name": rules.SERVICE, "namespace": guard.NAMESPACE}}])
        with tempfile.TemporaryDirectory() as folder:
            async with _started(server, Path(folder)) as (child, port):
                spent = {}
                for path in (rules.MUTATE_PATH, rules.VALIDATE_PATH, rules.GUARD_PATH):
                    await asyncio.to_thread(_ask, port, path, 200)
                    begun = cpu_seconds(child.pid)
                    await asyncio.to_thread(_ask, port, path, CALLS)
                    spent[path] = (cpu_seconds(child.pid) - begun) / CALLS * 1000
                return spent, resident_mb_peak(child.pid)


@contextlib.asynccontextmanager
async def _started(server: ApiServer, folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "gpushare", "webhook", "--listen", "127.0.0.1", "--port", str(port),
        "--kubeconfig", str(server.write_kubeconfig(folder / "kubeconfig")), "--log-level", "error",
    )  # fmt: skip
    try:
        await wait.eventually(lambda: _listens(port), "the webhook listens", READY_SECONDS)
        yield child, port
    finally:
        child.kill()
        await child.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _ask(port: int, path: str, calls: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    body = _review()
    for _ in range(calls):
        HERE.look()
        client.request("POST", path, body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        assert b'"allowed":true' in content, content
    client.close()


def _review() -> bytes:
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **world.pod("ask", 2000)}
    padding = {"apiVersion": "v1", "fieldsV1": {}, "manager": "kubectl", "operation": "Update", "time": "x"}
    while len(msgspec.json.encode(pod)) < SIZE:
        pod["metadata"].setdefault("managedFields", []).append(padding)
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE", "namespace": "default", "userInfo": {"username": names.COMPONENT}, "object": pod,
    }  # fmt: skip
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
