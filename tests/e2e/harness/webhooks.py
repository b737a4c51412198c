"""deploy/webhook.yaml on the real API server: its objects as shipped, its replicas as processes, and a small stand-in
for kube-proxy at the address of its Service.

The API server finds the Service, connects to its address, and checks the certificate as on any cluster.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from gpushare.operator.desired import namespaces
from tests.e2e.harness import forward, network, shipped
from tests.e2e.harness.cluster import Cluster, until
from tests.e2e.harness.processes import Process
from tests.support import wait
from tests.support.objects import Object

ADDRESS, PORT = "10.0.0.77", 443
FILE = "webhook.yaml"
ACCOUNT = "gpushare-webhook"
NOT_HERE = ("Deployment", "PodDisruptionBudget")  # there is no kubelet
PATIENCE = 30.0  # seconds


class Front:
    """Each connection goes to the next replica in the list, and stays there."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.black_hole = False  # connections are accepted, and nothing ever comes back
        self.connections = 0
        self._turn = itertools.count()

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._connected, ADDRESS, PORT)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self.black_hole:
                await asyncio.Event().wait()
            if not self.ports:
                return
            await forward.pass_on(reader, writer, "127.0.0.1", self.ports[next(self._turn) % len(self.ports)])
        finally:
            writer.close()


class Webhooks:
    def __init__(self, cluster: Cluster, front: Front, namespace: str) -> None:
        self.cluster, self.front, self.namespace = cluster, front, namespace
        self._ports = itertools.count(9443)
        self._config: Path | None = None

    async def replica(self, *arguments: str, takes_part: bool = True) -> tuple[Process, int]:
        """Ready, and asked like the others from now on."""
        port = next(self._ports)
        config = self._config = self._config or await self.cluster.account_kubeconfig(self.namespace, ACCOUNT)
        process = self.cluster.processes.start(
            f"webhook-{port}", Path(sys.executable).parent / "gpushare", "webhook", "--listen", "127.0.0.1",
            "--port", str(port), "--kubeconfig", config, *arguments,
            environment={**os.environ, "POD_NAMESPACE": self.namespace},
        )  # fmt: skip
        await until("the webhook", lambda: self.cluster.answers(f"https://127.0.0.1:{port}/readyz"), process)
        if takes_part:
            self.front.ports.append(port)
        return process, port

    async def kill(self, process: Process) -> None:
        await self.cluster.processes.end(process, signal.SIGKILL)

    async def webhooks(self, kind: str, name: str) -> list[Object]:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{name}"
        found: list[Object] = (await self.cluster.get(path)).get("webhooks") or []
        return found

    async def registered(self) -> None:
        async def all_are() -> bool:
            kinds = {"gpushare-pin": "mutating", "gpushare-guard": "validating", "gpushare-validate": "validating"}
            found = [await self.webhooks(kind, name) for name, kind in kinds.items()]
            return all(found) and all("caBundle" in one["clientConfig"] for many in found for one in many)

        await wait.eventually_asked(all_are, "the webhook is registered", PATIENCE)


@contextlib.asynccontextmanager
async def installed(cluster: Cluster, namespace: str = shipped.NAMESPACE) -> AsyncIterator[Webhooks]:
    """The manifest, without replicas, as the operator puts it into this namespace. All of it is gone afterwards."""
    shipped_here = (document for document in shipped.documents(FILE) if document["kind"] not in NOT_HERE)
    documents = [namespaces.moved(document, namespace) for document in shipped_here]
    for document in documents:
        if document["kind"] == "Service":
            document["spec"]["clusterIP"] = ADDRESS
    network.add(ADDRESS, b"lo:2")
    front = Front()
    server = await front.serve()
    webhooks = Webhooks(cluster, front, namespace)
    await cluster.apply(*documents)
    try:
        yield webhooks
    finally:
        for document in reversed(documents):  # first the configurations: without replicas they refuse pods
            where = ("--namespace", document["metadata"].get("namespace", "default"))
            name = document["metadata"]["name"]
            await cluster.kubectl("delete", document["kind"], name, "--ignore-not-found", *where)
        for process in [one for one in cluster.processes.running if one.name.startswith("webhook-")]:
            await webhooks.kill(process)
        server.close()
