"""How a node with GPUs stands, in one word, and where it is: for pages that show many nodes.

Pure. A cordon is kube-scheduler's matter and all others are ours, so it is named first.
"""

from gpushare.core.facts import intree
from gpushare.core.facts.model import NodeFacts, Pin
from gpushare.core.placement.fit import PLUGIN_DOWN
from gpushare.view.usage import NodeUse

CORDONED, DRAINING, BLOCKED, SELLING, UNCOUNTED, READY = (
    "cordoned", "draining", "blocked", "selling", "uncounted", "ready",
)  # fmt: skip
ZONE = "topology.kubernetes.io/zone"


def state(node: intree.Node, facts: NodeFacts | None, use: NodeUse | None) -> str:
    """`use`: None if it shares no GPU memory."""
    if node.spec.unschedulable:
        return CORDONED
    if use is None:
        return SELLING
    if facts is None:
        return UNCOUNTED
    if facts.blocked is None:
        return READY
    return DRAINING if facts.blocked == PLUGIN_DOWN else BLOCKED


def pin(facts: NodeFacts | None, use: NodeUse | None) -> Pin:
    """Who makes its containers see their GPUs."""
    if facts is not None:
        return facts.pin
    return Pin.NVIDIA if use is None else Pin.ALIYUN


def zone(node: intree.Node) -> str:
    return (node.metadata.labels or {}).get(ZONE, "")
