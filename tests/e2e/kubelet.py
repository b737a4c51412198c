"""A real node of the cluster: containerd and kubelet on a machine of their own (`containers`).

Started once per module by the fixture `node` and by `play`. What runs there is applied to the API server as anywhere
else; this file only brings the node up, takes it down, and does to it what happens to real nodes.
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e import binaries, containers_images, network
from tests.e2e.cluster import KUBELET, NODE, Cluster, until
from tests.e2e.containers import Machine
from tests.e2e.processes import Process

Object = dict[str, Any]
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
    "nodeStatusUpdateFrequency": "1s",  # allocatable follows capacity at that pace; 10 s by default
    "resolvConf": "",
}  # fmt: skip


class Node:
    """The node `NODE`. Everything that is asked of its machine goes through here."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machine = Machine(cluster.work / "node", cluster.processes, containers_images.SMALL)
        self._kubelet: Process | None = None
        self._gates: dict[str, bool] = {}

    async def start(self, gates: Mapping[str, bool] | None = None) -> None:
        """Ready, with the images it needs. `gates` are kubelet's feature gates."""
        self._gates = dict(gates or {})
        await self.machine.start()
        small = await asyncio.to_thread(containers_images.small, self.machine.folder / "image")
        await self.machine.import_image(small, containers_images.EXAMPLES)
        await self.machine.import_image(containers_images.product())
        await self.start_kubelet()
        await self.cluster.kubectl("label", "--overwrite", "node", NODE, *(f"{k}={v}" for k, v in LABELS.items()))

    async def stop(self) -> None:
        """The node's object goes, too: later tests shall not find it."""
        await self.stop_kubelet()
        await self.machine.stop()
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

    async def restart_kubelet(self) -> None:
        await self.stop_kubelet()
        await self.start_kubelet()

    async def object(self) -> Object:
        node: Object = await self.cluster.get(f"/api/v1/nodes/{NODE}")
        return node

    def inside(self, path: str) -> Path:
        return self.machine.inside(path)

    async def _is_ready(self) -> bool:
        """Open to pods, and kubelet knows those that are here already."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            known = await self._known_to_kubelet()
            nodes, pods = await self.cluster.get("/api/v1/nodes"), await self.cluster.get(f"/api/v1/pods?{OUR_PODS}")
            return known >= {pod["metadata"]["uid"] for pod in pods["items"]} and any(map(_is_open, nodes["items"]))
        return False

    async def _known_to_kubelet(self) -> set[str]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(f"https://{network.ADDRESS}:10250/pods", ssl=False) as response,
        ):
            pods = (await response.json(content_type=None))["items"] or []
            return {pod["metadata"]["uid"] for pod in pods}


def _is_open(node: Object) -> bool:
    ready = [c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
    return node["metadata"]["name"] == NODE and ready == ["True"] and not node["spec"].get("taints")
