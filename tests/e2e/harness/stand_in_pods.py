"""Pods of gpushare as processes, where there is no kubelet: with the words, the variables and the account of their
template, so that what a manifest says is what is tried. Those that end do so as their process does, and so does a Job.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.e2e.harness.cluster import Cluster, until
from tests.e2e.harness.processes import Process
from tests.support.tasks import beside

Object = dict[str, Any]
OF_HELM = "app.kubernetes.io/managed-by=Helm"


class Pods:
    """Of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.ended: list[str] = []  # the words and the exit code of each that was to end
        self._numbers = itertools.count()

    async def start(self, name: str, spec: Object) -> Process:
        """`spec`: of a pod with one container that runs gpushare."""
        (container,) = spec["containers"]
        config = await self.cluster.account_kubeconfig(self.namespace, spec["serviceAccountName"])
        gpushare = Path(sys.executable).parent / "gpushare"
        variables = {one["name"]: self._value(name, one) for one in container.get("env", ())}
        return self.cluster.processes.start(
            f"{name}-{next(self._numbers)}", gpushare, *container["args"], "--kubeconfig", config,
            environment={**os.environ, **variables},
        )  # fmt: skip

    def _value(self, name: str, variable: Object) -> str:
        """As kubelet fills it in."""
        if "value" in variable:
            return str(variable["value"])
        fields = {"metadata.namespace": self.namespace, "metadata.name": name}
        return fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]

    @contextlib.asynccontextmanager
    async def deployment(self, name: str) -> AsyncIterator[Process]:
        """One pod of it, ready; ended as kubelet ends it."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        spec = (await self.cluster.get(path))["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        probe, (port,) = container["readinessProbe"]["httpGet"], container["ports"]
        process = await self.start(name, spec)
        try:
            url = f"http://127.0.0.1:{port['containerPort']}{probe['path']}"
            await until(name, lambda: self.cluster.answers(url), process)
            yield process
        finally:
            await self.cluster.processes.end(process)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Meanwhile pods of helm's that end, of Jobs or of a test, run as soon as they are there."""
        async with beside(self._run_all()):
            yield

    async def _run_all(self) -> None:
        done: set[str] = set()
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={OF_HELM}"
        while True:
            for pod in (await self.cluster.get(path))["items"]:
                if pod["metadata"]["uid"] not in done and pod["spec"]["restartPolicy"] != "Always":
                    done.add(pod["metadata"]["uid"])
                    await self._run(pod)
            await asyncio.sleep(0.1)

    async def _run(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        process = await self.start(pod["spec"]["serviceAccountName"], pod["spec"])
        while process.running:  # noqa: ASYNC110 - a process tells nobody that it ended
            await asyncio.sleep(0.05)
        code = process.popen.returncode
        await self.cluster.processes.end(process)
        self.ended.append(f"{' '.join(container['args'])}: {code}")
        ended = {"name": container["name"], "state": {"terminated": {"exitCode": code}}, "ready": False,
                 "restartCount": 0, "image": container["image"], "imageID": ""}  # fmt: skip
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        whom = ("pod", pod["metadata"]["name"], "--namespace", self.namespace)
        await self.cluster.kubectl("patch", *whom, "--subresource=status", "--patch", json.dumps({"status": status}))
