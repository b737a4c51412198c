"""All that a cluster and its real node have at one moment, to be compared with another moment.

Objects by their names, asked of every kind that the API server can list; what the node object says; and files of the
machine in the folders that components write to. Left out is what comes and goes by itself.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from gpushare.core.facts import names
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.kubelet import Node
from tests.support.objects import Object

BY_THEMSELVES = ("events", "endpoints", "endpointslices")
LEASES = ("apiserver-", "real")  # of the API server and of kubelet
FOLDERS = ("/run/nvidia", "/run/cdi", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/static")
SHARED_FOLDERS = ("/etc/kubernetes", "/etc/cdi")  # the machine has none of its own
CHECKPOINT = "kubelet_internal_checkpoint"  # kubelet's own, about devices
KUBELETS = ("volumes.kubernetes.io/", "node.alpha.kubernetes.io/")  # annotations that controllers write


class Snapshot(NamedTuple):
    objects: frozenset[str]
    node: dict[str, Object]
    files: frozenset[str]

    def without_namespace(self, name: str) -> "Snapshot":
        """As if `kubectl create namespace` had not been called: the namespace, and what Kubernetes makes in it."""
        made = {f"namespaces {name}", f"serviceaccounts {name}/default", f"configmaps {name}/kube-root-ca.crt"}
        return self._replace(objects=self.objects - made)


async def taken(node: Node) -> Snapshot:
    found = {line async for line in objects(node.cluster)}
    return Snapshot(frozenset(found), _of_node(await node.object()), frozenset(_files(node)))


async def objects(cluster: Cluster) -> AsyncIterator[str]:
    for path in await _versions(cluster):
        for kind in (await cluster.get(path))["resources"]:
            if "list" in kind["verbs"] and "/" not in kind["name"] and kind["name"] not in BY_THEMSELVES:
                for one in (await cluster.get(f"{path}/{kind['name']}"))["items"] or ():
                    if kind["name"] != "leases" or not one["metadata"]["name"].startswith(LEASES):
                        yield _line(kind["name"], one["metadata"])


async def _versions(cluster: Cluster) -> list[str]:
    groups = (await cluster.get("/apis"))["groups"]
    return ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]


def _line(kind: str, metadata: Object) -> str:
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{kind} {where}{metadata['name']}"


def _of_node(node: Object) -> dict[str, Object]:
    """kubelet remembers a device plugin that is gone: for minutes its capacity stays, with 0 that can be had, and then
    it is 0 for ever."""
    metadata, status = node["metadata"], node["status"]
    plugins = [name for name in names.NVIDIA_GPUS if status["allocatable"].get(name) == "0"]
    return {
        "labels": metadata["labels"],
        "annotations": {k: v for k, v in metadata.get("annotations", {}).items() if not k.startswith(KUBELETS)},
        "spec": {key: node["spec"].get(key) for key in ("taints", "unschedulable")},
        "capacity": {name: value for name, value in status["capacity"].items() if "/" in name and name not in plugins},
    }


def _files(node: Node) -> Iterator[str]:
    roots = [(node.machine.inside(folder), folder) for folder in FOLDERS]
    for real, shown in (*roots, *((Path(folder), folder) for folder in SHARED_FOLDERS)):
        for path in real.rglob("*"):
            if not path.is_dir() and path.name != CHECKPOINT:
                yield f"{shown}/{path.relative_to(real)}"
