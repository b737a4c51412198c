"""Small phrases that several parts of the text use: units, amounts, names of pods.

Pure.
"""

from gpushare.core.explain.report import Explanation, GpuView, Holder, NodeView, ShareView
from gpushare.core.facts import names

NODES = "node(s) "  # how a refusal about nodes begins: kube-scheduler puts a number in front


def shares_of(explanation: Explanation) -> list[ShareView]:
    return explanation.request.shares if explanation.request is not None else []


def unit_of(explanation: Explanation, node: str | None = None) -> str:
    """The unit of amounts on a node or, if none is named, of the request."""
    units = [view.unit for view in explanation.nodes if view.unit and (node is None or view.name == node)]
    of_nodes = units[0] if units else None
    of_request = explanation.request.unit if explanation.request is not None else None
    return (of_request or of_nodes if node is None else of_nodes or of_request) or names.MIB


def free_of_total(gpu: GpuView, unit: str | None) -> str:
    return f"{gpu.free} of {gpu.total} {unit} free"


def unhealthy_with_room(view: NodeView, need: int) -> GpuView | None:
    """The unhealthy GPU that has enough free."""
    return next((gpu for gpu in view.gpus if not gpu.healthy and gpu.free >= need), None)


def pod_name(holder: Holder, explanation: Explanation) -> str:
    """Pods of the same namespace need no namespace."""
    return holder.pod.removeprefix(f"{explanation.pod.namespace}/")
