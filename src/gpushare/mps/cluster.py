"""What this node's object and its pods say about MPS: into how many parts GPUs are divided, and who are clients.

Two watches that nothing waits for: MPS works without the API server. Clients are pods with MPS shares of gpushare, with
MPS replicas where the node sells those, or with GPU memory and the pipes of MPS mounted.
"""

from collections.abc import Callable, Set
from typing import Final

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import Request
from gpushare.kube import resources
from gpushare.kube.client import Api
from gpushare.kube.reflector import Reflector

BY_MPS: Final = "mps"  # how replicas of a GPU share it
SILENCE, PATIENCE = 75.0, 300.0  # seconds, as of the node part: there may be thousands of nodes
RUNNING: Final = "Running"


class NodeSight:
    """`replicas`: into so many parts each GPU is divided; 1: not at all. `resources`: what clients ask for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.replicas = 1
        self.resources: frozenset[str] = frozenset({names.MPS_GPU})
        self.changed: Callable[[], None] = lambda: None

    def upsert(self, item: objects.Node) -> None:
        facts = node_gpus.read(item, frozenset())
        divided = [sold for sold in (facts.sold if facts is not None else ()) if sold.sharing == BY_MPS]
        self.resources = frozenset({names.MPS_GPU, *(sold.resource for sold in divided)})
        replicas = max((sold.replicas for sold in divided), default=1)
        if replicas != self.replicas:
            self.replicas = replicas
            self.changed()

    def remove(self, item: objects.Node) -> None:
        """A node that is gone comes back with what it says then."""

    def relisted(self, kept: Set[str]) -> None:
        """The same."""


class PodSight:
    """The pods of this node, by uid."""

    def __init__(self) -> None:
        self.pods: dict[str, objects.Pod] = {}

    def upsert(self, item: objects.Pod) -> None:
        self.pods[item.metadata.uid] = item

    def remove(self, item: objects.Pod) -> None:
        self.pods.pop(item.metadata.uid, None)

    def relisted(self, kept: Set[str]) -> None:
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid in kept}

    def clients(self, asked: frozenset[str]) -> list[objects.Pod]:
        """Those that run, and ask for one of these resources or are clients by their mounts."""
        running = [pod for pod in self.pods.values() if pod.status.phase == RUNNING]
        return [pod for pod in running if _asks(pod, asked) or _mounts_pipes(pod)]


class Watches:
    def __init__(self, api: Api, node: str) -> None:
        self.node, self.pods = NodeSight(node), PodSight()
        self.of_node = Reflector(
            api, resources.NODES, objects.Node, self.node, key=lambda item: item.metadata.name, optional=True,
            query={"fieldSelector": f"metadata.name={node}"}, silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip
        self.of_pods = Reflector(
            api, resources.PODS, objects.Pod, self.pods, key=lambda item: item.metadata.uid, optional=True,
            query={"fieldSelector": f"spec.nodeName={node}"}, silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip

    def clients(self) -> list[objects.Pod]:
        return self.pods.clients(self.node.resources)


def _asks(pod: objects.Pod, asked: frozenset[str]) -> bool:
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    needs = [container.resources for container in containers if container.resources is not None]
    return any(asked & set(need.limits or ()) for need in needs)


def _mounts_pipes(pod: objects.Pod) -> bool:
    asked = request.parse(pod, None)
    return isinstance(asked, Request) and asked.by_mps
