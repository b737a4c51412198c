"""The cluster at one moment, with the ledger the extender would have of it.

Made by `read` from two lists, or by `build` from objects in hand. Everything the commands show is worked out from this
by the core that the extender uses. It needs no extender, and works with the annotations of Aliyun's plugin, too.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names, objects, request
from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.vitals import FullStatus
from gpushare.core.ledger.ledger import Ledger
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view.source import Source

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"

T = TypeVar("T")


class Address(objects.Struct):
    type: str = ""
    address: str = ""


class NodeStatus(objects.NodeStatus):
    addresses: list[Address] | None = None
    conditions: list[objects.Condition] | None = None


class Node(intree.Node):
    """A node with its addresses and how it is, which only people want to know."""

    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Items(objects.Struct, Generic[T]):
    items: list[T] | None = None


class Snapshot(msgspec.Struct):
    nodes: list[intree.Node]  # by name
    pods: list[intree.Pod]  # by namespace and name
    ledger: Ledger  # of the bound pods; nothing is assumed or reserved
    asking: list[PodFacts]  # the pods that ask for GPU memory, in the order of `pods`
    now: float  # seconds since 1970
    doing: dict[str, FullStatus] = {}  # what the GPUs of a node do, by its name; only where a command shows it


def read(source: Source, now: float) -> Snapshot:
    """Asks for all nodes and all pods. A UserError says what is wrong."""
    nodes = decode(source.get(NODES), Items[Node], NODES)
    pods = decode(source.get(PODS), Items[intree.Pod], PODS)
    return build(nodes.items or [], pods.items or [], now)


def build(nodes: Iterable[intree.Node], pods: Iterable[intree.Pod], now: float) -> Snapshot:
    """The same from objects in hand."""
    by_name = sorted(nodes, key=lambda node: node.metadata.name)
    by_place = sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    ledger, asking = Ledger(), []
    # Pods first: what a node has free is then worked out once for each node, not for each pod.
    for pod in by_place:
        facts = request.facts(pod, None)
        if facts.request is not None:
            asking.append(facts)
            ledger.observe(facts, now)
    for node in by_name:
        # Where annotation and capacity of a node contradict each other, the extender believes the annotation for a
        # minute. A snapshot cannot tell for how long they have done so, and few stop without help.
        node_facts = node_gpus.read(node, frozenset(), as_aliyun=node_gpus.contradicts(node))
        if node_facts is not None:
            ledger.set_node(node_facts)
    if any(pod.annotation(names.KEPT) is not None for pod in asking):
        from gpushare.core.scheduling import patience  # rarely needed, and commands must start at once

        patience.show(ledger, asking)
    return Snapshot(by_name, by_place, ledger, asking, now)


def decode(body: bytes, kind: type[T], path: str) -> T:
    """The API server's answer; a UserError if it cannot be read."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        what = f"the API server's answer cannot be read: GET {path}"
        raise UserError(what, str(error), "is it a Kubernetes API server? kubectl version", CLUSTER_NOT_ASKED) from None
