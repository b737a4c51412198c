"""Pods of gpushare as processes, where there is no kubelet: with the words, the variables and the account of their
template, so that what a manifest says is what is tried. Those of Jobs end as their process does, and so does the Job.
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
OF_A_JOB = "batch.kubernetes.io/job-name"


class Pods:
    """Of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.jobs: list[str] = []  # those that were run, by name
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
    async def running_jobs(self) -> AsyncIterator[None]:
        """Meanwhile pods of Jobs run as soon as they are there."""
        async with beside(self._run_jobs()):
            yield

    async def _run_jobs(self) -> None:
        done: set[str] = set()
        while True:
            pods = (await self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={OF_A_JOB}"))[
                "items"
            ]
            for pod in pods:
                if pod["metadata"]["uid"] not in done:
                    done.add(pod["metadata"]["uid"])
                    await self._run_job(pod)
            await asyncio.sleep(0.1)

    async def _run_job(self, pod: Object) -> None:
        name = pod["metadata"]["labels"][OF_A_JOB]
        process = await self.start(name, pod["spec"])
        while process.running:  # noqa: ASYNC110 - a process tells nobody that it ended
            await asyncio.sleep(0.05)
        code = process.popen.returncode
        await self.cluster.processes.end(process)
        self.jobs.append(name)
        (container,) = pod["spec"]["containers"]
        ended = {"name": container["name"], "state": {"terminated": {"exitCode": code}}, "ready": False,
                 "restartCount": 0, "image": container["image"], "imageID": ""}  # fmt: skip
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        whom = ("pod", pod["metadata"]["name"], "--namespace", self.namespace)
        await self.cluster.kubectl("patch", *whom, "--subresource=status", "--patch", json.dumps({"status": status}))
