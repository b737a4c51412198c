"""gpushare installed by its chart on the real node, as people do it: helm and kubectl in a shell.

The node has GPUs, NVIDIA's driver and its container runtime (`gpu_host`); all else comes from the chart. Values that
the test machine needs are in a file of their own (`MACHINE`). Every command and what it printed is kept for the docs.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpushare.core.facts import names
from tests.e2e.harness import binaries, keti_images, nvidia_runtime, services, shipped, snapshot
from tests.e2e.harness.cluster import ADMIN, NODE, ROOT, Failed
from tests.e2e.harness.gpu_host import GpuHost
from tests.e2e.harness.kubelet import LABELS, Node
from tests.support import wait
from tests.support.objects import Object

NAMESPACE = RELEASE = "gpu-operator"
CHART = ROOT / "charts" / "gpushare"
POLICY = "/apis/gpushare.io/v1alpha1/clusterpolicies/cluster-policy"
KEPT = "operator-guide.txt"  # in the folder of logs, for docs/operator.md and docs/install.md
PATIENCE = 120.0
LONGEST = 300  # seconds for one command
NAMED_SECONDS = 10.0  # so soon the status names what is broken
REPAIRED_SECONDS = 5.0  # and so soon a hand edit is undone
TOLERATES = [{"operator": "Exists"}]  # there is one node only, and it is the tainted one
MERGE_PATCH = "application/merge-patch+json"


class Operator:
    def __init__(self, node: Node) -> None:
        self.node, self.cluster, self.host = node, node.cluster, GpuHost(node.machine)
        self.folder = node.machine.folder / "operator"  # files that people write: values, manifests

    # Before and after

    async def prepare(self, gpus: Sequence[int]) -> snapshot.Snapshot:
        """All that the cluster has before somebody begins. Returns what that is."""
        self.folder.mkdir()
        await self.host.install(gpus)
        scheduler = await asyncio.to_thread(keti_images.scheduler, _made(self.folder / "images"))
        await self.node.machine.import_image(scheduler)
        services.lead_to_api(self.cluster)
        await self.cluster.kubectl("label", "node", NODE, *(f"{name}-" for name in _ours(LABELS)))
        await self.cluster.kubectl("delete", "-f", "-", given=_listed(shipped.rights()))  # that other tests use
        return await snapshot.taken(self.node)

    async def stop(self) -> None:
        """Removes what a failed test has left."""
        self.node.keep_logs(NAMESPACE)
        with contextlib.suppress(Failed):
            await self.shell(f"helm uninstall {RELEASE} -n {NAMESPACE} --no-hooks --ignore-not-found")
        await services.end(self.cluster)
        await self.cluster.apply(*shipped.rights())

    # What people do

    def write(self, name: str, content: Any) -> Path:
        """A file of theirs: text, or what becomes YAML."""
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return file

    async def shell(self, command: str) -> str:
        """With kubectl and helm, as admin, in their folder. Returns what it printed; raises if it failed."""
        path = f"{binaries.program('kubectl').parent}:{binaries.helm().parent}:{os.environ['PATH']}"
        own = {f"HELM_{name}_HOME": str(self.folder / "helm" / name) for name in ("CACHE", "CONFIG", "DATA")}
        config = self.cluster.kubeconfig(ADMIN, self.cluster.tokens[ADMIN])
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=LONGEST,
            check=False, env={**os.environ, **own, "PATH": path, "KUBECONFIG": str(config)},
        )  # fmt: skip
        with (self.cluster.logs / KEPT).open("a") as kept:
            kept.write(f"$ {command}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise Failed(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def machine_values(self) -> Object:
        """What a test machine needs besides: its driver is in a folder, below which it is asked, and its GPUs are
        described in a file there."""
        gpus = {"name": nvidia_runtime.STATE_VARIABLE, "value": f"/{nvidia_runtime.GPUS}"}
        return {
            "hostPaths": {"rootFS": str(self.host.root)},
            "validator": {"env": [gpus]},
            "operator": {"tolerations": TOLERATES},
        }

    async def patch(self, spec: Object) -> None:
        """Of the policy: as `kubectl patch --type=merge`."""
        await self.shell(f"kubectl patch clusterpolicy cluster-policy --type=merge -p '{json.dumps({'spec': spec})}'")

    # What is seen

    async def policy(self) -> Object:
        found: Object = await self.cluster.get(POLICY)
        return found

    async def status(self) -> Object:
        status: Object = (await self.policy()).get("status", {})
        return status

    async def component(self, name: str) -> Object:
        """As the status has it."""
        (found,) = (one for one in (await self.status())["components"] if one["name"] == name)
        return dict(found)

    async def until_ready(self, seconds: float = PATIENCE) -> float:
        """Returns how long that took. The status is of the policy as it is now."""

        async def ready() -> bool:
            policy = await self.policy()
            status = policy.get("status", {})
            current = status.get("observedGeneration") == policy["metadata"]["generation"]
            return bool(current and status.get("state") == "ready")

        return await self._timed(ready, "the policy is ready", seconds)

    async def until_named(self, *words: str, seconds: float = NAMED_SECONDS) -> float:
        """Until the policy is not ready and one line of its message has all these words: component, node, reason."""

        async def named() -> bool:
            status = await self.status()
            lines = "\n".join(one.get("message", "") for one in status.get("conditions", ())).split("\n")
            return status.get("state") == "notReady" and any(all(word in line for word in words) for line in lines)

        return await self._timed(named, f"the status names {words}", seconds)

    async def _timed(self, condition: Any, what: str, seconds: float) -> float:
        began = time.monotonic()
        try:
            await wait.eventually_asked(condition, what, seconds)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{await self.described()}") from None
        return time.monotonic() - began

    async def described(self) -> str:
        """For whoever reads why a test failed."""
        words = ("get", "pods,daemonsets,deployments", "-n", NAMESPACE, "-o", "wide")
        status = json.dumps(await self.status(), indent=1)
        node = await self.node.object()
        said = {k: v for k, v in node["metadata"].get("annotations", {}).items() if k.startswith("gpushare.io/")}
        return f"{status}\n{said}\n{await self.cluster.kubectl(*words)}"

    # Pods of the operator

    async def pods_of(self, component: str) -> list[Object]:
        """Of one of its workloads that runs our image."""
        found = await self.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=component={component}")
        return list(found["items"])

    def mounted(self, volume: str, key: str) -> list[str]:
        """What kubelet has put into pods of a ConfigMap. That takes seconds after a change; by default, a minute."""
        folder = self.node.machine.inside("/var/lib/kubelet/pods")
        return [file.read_text() for file in folder.glob(f"*/volumes/kubernetes.io~configmap/{volume}/{key}")]

    def ready_files(self) -> dict[str, float]:
        """Of the validator, and when each was written."""
        folder = self.node.machine.inside(names.VALIDATIONS_FOLDER)
        return {file.name: file.stat().st_mtime for file in folder.glob("*-ready")}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _listed(objects: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def _ours(labels: dict[str, str]) -> list[str]:
    return [name for name in labels if name.startswith("gpushare")]


@contextlib.asynccontextmanager
async def prepared(node: Node, gpus: Sequence[int]) -> AsyncIterator[tuple[Operator, snapshot.Snapshot]]:
    """A node with GPUs in a cluster with a stock kube-scheduler: whoever comes here installs."""
    operator = Operator(node)
    async with node.cluster.scheduler(extenders=[]):
        try:
            yield operator, await operator.prepare(gpus)
        finally:
            await operator.stop()
