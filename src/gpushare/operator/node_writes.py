"""From what a node should have to the requests that write it. Nothing is sent here.

Each is safe to repeat, and answers 409 if the node has changed in a way that matters: then the watch shows how it is
now. A node that has all it should has no request.
"""

from gpushare.core.facts import names
from gpushare.kube import requests, resources
from gpushare.kube.labels import applied
from gpushare.kube.requests import Request
from gpushare.operator import managed, nodes
from gpushare.operator.managed import Node
from gpushare.operator.nodes import Taints, Wanted


def writes(node: Node, want: Wanted) -> list[Request]:
    found = []
    if not nodes.has_labels(node, want.labels):
        force = nodes.takes_over(node, want.labels)
        found.append(applied.apply(node.metadata, names.OPERATOR_MANAGER, want.labels, force=force, unchanged=force))
    if want.taints is not None:
        found.append(_taint(node, want.taints))
    return found + [applied.take_back(node.metadata, one) for one in sorted(want.ended)]


def taken_back(node: Node) -> list[Request]:
    """What takes all of ours from a node. Of use when the programs that write it have ended."""
    others = sorted(managed.managers(node) - {names.OPERATOR_MANAGER})
    return writes(node, nodes.wanted(node, None)) + [applied.take_back(node.metadata, one) for one in others]


def _taint(node: Node, taints: Taints) -> Request:
    """The list is written as a whole, so nobody may have changed it meanwhile."""
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {names.TAINTED: nodes.YES if taints.ours else None},
    }
    return requests.patch(
        resources.NODES, "", node.metadata.name, {"metadata": metadata, "spec": {"taints": taints.items}}
    )
