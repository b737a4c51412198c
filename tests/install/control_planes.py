"""An API server, kube-schedulers and an extender, as far as `gpushare install-scheduler` sees them, over real HTTP."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from gpushare.core.facts import names
from gpushare.install.plan import Plan
from gpushare.install.proof import Control
from gpushare.install.store import Store
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from tests.install import texts
from tests.install.texts import Object

PODS = "/api/v1/namespaces/kube-system/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
RUNS = {"ready": True, "state": {"running": {}}}
CRASHED = {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
           "lastState": {"terminated": {"exitCode": 1}}}  # fmt: skip


class ControlPlanes:
    """What the schedulers say of the pod that asks, who leads, and whether the extender is ready, is told by a test."""

    def __init__(self, root: Path) -> None:
        self.pods: dict[str, Object] = {}
        self.holder, self.renewals, self.renews = "", 0, True
        self.says = f"0/1 nodes are available: 1 {names.ASKED}."
        self.places, self.forbids, self.extender_status, self.scheduler_name = "", "", 200, ""
        self.made = list[Object]()
        self.log = "I0 started\nE0 the last words\n"
        self._root, self._port = root, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def plan(self) -> Plan:
        text = texts.kubeadm().replace(b"10259", str(self._port).encode()).replace(b"scheme: HTTPS", b"scheme: HTTP")
        return texts.made(text, url=f"{self.url}/gpushare-scheduler")

    def add(self, node: str, *, edited: bool = True, status: Object | None = None) -> None:
        plan = self.plan
        words = [*plan.manifest.words, *([f"--config={plan.path}"] if edited else [])]
        name = f"kube-scheduler-{node}"
        self.pods[name] = {
            "metadata": {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": node, "containers": [{"command": words}]},
            "status": {"containerStatuses": [status or RUNS]},
        }

    @property
    def asking(self) -> list[str]:
        """Pods of ours that are left."""
        return [name for name in self.pods if name.startswith("gpushare-only-asked-")]

    def control(self, api: client.Api, node: str = "cp-1", seconds: float = 20.0) -> Control:
        return Control(api, node, Store(self._root, texts.NAME), seconds)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[client.Api]:
        app = web.Application()
        app.add_routes(
            [
                web.get(PODS, self._list), web.post(PODS, self._create), web.get(PODS + "/{name}", self._get),
                web.delete(PODS + "/{name}", self._delete), web.get(PODS + "/{name}/log", self._log),
                web.get(LEASE, self._lease), web.get("/readyz", self._ready),
            ]
        )  # fmt: skip
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        try:
            async with client.connect(Access(self.url)) as api:
                yield api
        finally:
            await runner.cleanup()

    async def _list(self, req: web.Request) -> web.Response:
        chosen = [
            pod for pod in self.pods.values() if "labelSelector" not in req.query or pod["metadata"].get("labels")
        ]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": chosen})

    async def _create(self, req: web.Request) -> web.Response:
        if self.forbids:
            return _refused(403, self.forbids)
        pod: Any = await req.json()
        if self.scheduler_name:
            pod["spec"]["schedulerName"] = self.scheduler_name
        pod["metadata"]["name"] = f"{pod['metadata']['generateName']}{len(self.made)}"
        if "dryRun" not in req.query:
            self.made.append(pod)
            self.pods[pod["metadata"]["name"]] = pod
        return web.json_response(pod, status=201)

    async def _get(self, req: web.Request) -> web.Response:
        pod = self.pods.get(req.match_info["name"])
        if pod is None:
            return _refused(404, "not found")
        if req.match_info["name"] in self.asking:
            pod["spec"]["nodeName"] = self.places
            condition = {"type": "PodScheduled", "status": "False", "message": self.says}
            pod["status"] = {"conditions": [condition]}
        return web.json_response(pod)

    async def _delete(self, req: web.Request) -> web.Response:
        return web.json_response(self.pods.pop(req.match_info["name"], {}))

    async def _log(self, req: web.Request) -> web.Response:
        return web.Response(text=self.log)

    async def _lease(self, req: web.Request) -> web.Response:
        self.renewals += self.renews
        return web.json_response({"spec": {"holderIdentity": self.holder, "renewTime": f"t{self.renewals}"}})

    async def _ready(self, req: web.Request) -> web.Response:
        """Of the extender and of the scheduler."""
        return web.Response(status=self.extender_status, text="not now" if self.extender_status != 200 else "ok")


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)
