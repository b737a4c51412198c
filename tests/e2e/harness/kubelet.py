"""A real node of the cluster: containerd and kubelet on a machine of their own (`containers`).

Workloads are applied to the API server as usual. This file only starts and stops the node, and does to it what happens
to real nodes: restarts, power failures, a lost API server.
"""

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from tests.e2e.harness import binaries, images, network
from tests.e2e.harness.cluster import KUBELET, NODE, Cluster, until
from tests.e2e.harness.containers import Machine
from tests.e2e.harness.processes import Process

Object = dict[str, Any]
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
LOGS = "node/var/log/pods/{namespace}_*/*/*.log"  # below the cluster's work folder
OUR_NAMESPACES = ("kube-system", "gpu-operator")  # of our components
STATIC_PODS = "/etc/kubernetes/manifests"
OUR_PODS = f"fieldSelector=spec.nodeName={NODE}"
LABELS = {"gpushare": "true", "node-role.kubernetes.io/control-plane": ""}  # only an admin may give it these
CONFIGURATION: Object = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "address": network.ADDRESS,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "enforceNodeAllocatable": [],
    "evictionHard": {
        "memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%",
    },
    "imageGCHighThresholdPercent": 100,
    "maxPods": 250,
    "staticPodPath": STATIC_PODS,
    "syncFrequency": "5s",  # how soon the API server hears of a static pod after it was away; 1 minute by default
    "nodeStatusUpdateFrequency": "1s",  # allocatable follows capacity at that pace; 10 s by default
    "resolvConf": "",
}  # fmt: skip


class Node:
    """The node `NODE` and its machine."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machine = Machine(cluster.work / "node", cluster.processes, images.SMALL)
        self._kubelet: Process | None = None
        self._gates: dict[str, bool] = {}  # kubelet's feature gates, where they are not as by default

    async def start(self) -> None:
        """Starts it. Returns when it is ready and has the images it needs."""
        await self.machine.start()
        self.machine.inside(STATIC_PODS).mkdir()
        small = await asyncio.to_thread(images.small, self.machine.folder / "image")
        for archive in (*small, images.product()):
            await self.machine.import_image(archive)
        await self.start_kubelet()
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, *(f"{k}={v}" for k, v in LABELS.items()))

    async def end(self) -> None:
        """Stops the node and all that runs on it."""
        await self.stop_kubelet()
        await self.machine.stop()

    async def stop(self) -> None:
        """Also deletes the node object, so that later tests do not find it."""
        await self.end()
        await self.cluster.kubectl("delete", "node", NODE, "--ignore-not-found")
        ours = ("--all-namespaces", f"--field-selector=spec.nodeName={NODE}")
        await self.cluster.kubectl("delete", "pods", *ours, "--grace-period=0", "--force")

    async def start_kubelet(self) -> None:
        file = self.machine.folder / "kubelet.json"
        changes = {"cgroupRoot": f"/{self.machine.cgroup}", "featureGates": self._gates}
        file.write_text(json.dumps({**CONFIGURATION, **changes}))
        self._kubelet = self.machine.run_in(
            "kubelet", binaries.program("kubelet"), f"--config={file}", f"--node-ip={network.ADDRESS}",
            f"--kubeconfig={self.cluster.kubeconfig(KUBELET, self.cluster.tokens[KUBELET])}",
            f"--hostname-override={NODE}", "--root-dir=/var/lib/kubelet",
        )  # fmt: skip
        await until("kubelet", self._is_ready, self._kubelet)

    async def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._kubelet is not None:
            await self.machine.end(self._kubelet, number)
            self._kubelet = None

    async def restart_kubelet(self, gates: Mapping[str, bool] | None = None, *, forgetting: bool = False) -> None:
        """With the same feature gates or others. `forgetting`: without its checkpoint of devices."""
        await self.stop_kubelet()
        self._gates = dict(self._gates if gates is None else gates)
        if forgetting:
            self.machine.inside(CHECKPOINT).unlink(missing_ok=True)
        await self.start_kubelet()

    @contextlib.contextmanager
    def static_pod(self, pod: Object) -> Iterator[None]:
        """kubelet runs it without the API server."""
        file = self.machine.inside(STATIC_PODS) / "pod.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
        try:
            yield
        finally:
            file.unlink()

    async def reboot(self) -> None:
        """All processes end; files stay."""
        await self.stop_kubelet()
        await self.machine.kill_all_containers()
        await self.start_kubelet()

    def keep_logs(self, namespace: str = "kube-system") -> None:
        """Keeps the logs of gpushare's pods, which are deleted with the pods."""
        for log in self.cluster.work.glob(LOGS.format(namespace=namespace)):
            pod = log.parents[1].name.split("_")[1]
            with contextlib.suppress(FileNotFoundError):  # kubelet takes the log of a pod that is gone away
                shutil.copy(log, self.cluster.logs / f"{pod}-{log.name}")

    async def object(self) -> Object:
        node: Object = await self.cluster.get(f"/api/v1/nodes/{NODE}")
        return node

    async def _is_ready(self) -> bool:
        """Whether it takes pods and kubelet knows those that are here already."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            known = {pod["metadata"]["uid"] for pod in await self.pods_of_kubelet()}
            nodes, pods = await self.cluster.get("/api/v1/nodes"), await self.cluster.get(f"/api/v1/pods?{OUR_PODS}")
            return known >= {pod["metadata"]["uid"] for pod in pods["items"]} and any(map(_is_open, nodes["items"]))
        return False

    async def pods_of_kubelet(self) -> list[Object]:
        return list(json.loads(await self.ask_kubelet("pods"))["items"] or ())

    async def runs(self, pod: str) -> bool:
        """By kubelet, which may know more than the API server."""
        return any(
            found["metadata"]["name"] == pod and found["status"]["phase"] == "Running"
            for found in await self.pods_of_kubelet()
        )

    async def ask_kubelet(self, path: str) -> str:
        """Asks kubelet itself, without the API server."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5), raise_for_status=True) as session,
            session.get(f"https://{network.ADDRESS}:10250/{path}", ssl=False) as response,
        ):
            return await response.text()


def _is_open(node: Object) -> bool:
    ready = [c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    return node["metadata"]["name"] == NODE and ready == ["True"] and not node["spec"].get("taints")
