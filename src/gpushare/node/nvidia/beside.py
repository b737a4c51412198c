"""Whether this node still sells shares of its GPUs: then whole GPUs must not be sold beside them.

Pure. A process that sells shares and ends in order says so in the node's annotation (`draining`).
"""

from collections.abc import Iterable
from typing import Final

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Pin, PodFacts, Request
from gpushare.core.placement.fit import PLUGIN_DOWN
from gpushare.obs.errors import UserError

SOLD_TWICE: Final = "each GPU would be given away twice"
SELLS_SHARES: Final = "{node}: its GPUs are sold as shares already"
SELLER: Final = {Pin.ALIYUN: "a device plugin sells {resource}", Pin.DIRECT: "gpushare sells {resource}"}
END_IT: Final = (
    "keep Aliyun's device plugin, or gpushare without --sell=gpus, off this node (label gpushare=gpus, not true). "
    "If it was killed, start it once more, so that it can end in order"
)
HELD: Final = "{node}: pods here hold shares of its GPUs"
DELETE_THEM: Final = "kubectl delete pod -n {namespace} {name}, and the others; or wait until they have ended"


def conflict(node: objects.Node, pods: Iterable[PodFacts]) -> UserError | None:
    """Why whole GPUs cannot be sold here at the moment."""
    facts, name = node_gpus.read(node, frozenset()), node.metadata.name
    if facts is not None and facts.pin is not Pin.NVIDIA and facts.blocked is not PLUGIN_DOWN:
        seller = SELLER[Pin.ALIYUN if facts.pin is Pin.ALIYUN else Pin.DIRECT].format(resource=names.GPU_MEM)
        return UserError(SELLS_SHARES.format(node=name), f"{seller}: {SOLD_TWICE}", END_IT)
    holders = [pod for pod in pods if isinstance(pod.request, Request) and not pod.finished]
    if holders:
        first = holders[0]
        why = f"{len(holders)} of them, such as {first.namespace}/{first.name}: {SOLD_TWICE}"
        return UserError(HELD.format(node=name), why, DELETE_THEM.format(namespace=first.namespace, name=first.name))
    return None
