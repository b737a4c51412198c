"""What kube-scheduler's own count says to a pod that asks for GPUs by number, and not for GPU memory.

Pure. gpushare does not decide about such a pod. Whether it fits is a comparison of numbers, node by node: `inspect`
lists such pods among those that wait, and `why` says more about one of them.
"""

from collections.abc import Mapping, Sequence

from gpushare.core.facts.model import Refusal
from gpushare.view.sold import SoldUse

# Of all nodes, and of one alone.
NOT_SOLD = ("no node sells {what}", "it does not sell {what}")
TOO_MANY = ("no node has as many as {what}", "it does not have as many as {what}")
NONE_FREE = ("no node has {what} free", "it does not have {what} free")

Asks = Mapping[str, int]
"""By resource."""
Offer = Mapping[str, SoldUse]
"""What one node sells, by resource."""


def offers(uses: Sequence[SoldUse]) -> dict[str, dict[str, SoldUse]]:
    """By node."""
    by_node: dict[str, dict[str, SoldUse]] = {}
    for use in uses:
        by_node.setdefault(use.node, {})[use.resource] = use
    return by_node


def short(asks: Asks, offer: Offer) -> dict[str, int]:
    """How many of each resource a node lacks; empty: the pod fits."""
    missing = {name: amount - (offer[name].left if name in offer else 0) for name, amount in asks.items()}
    return {name: amount for name, amount in missing.items() if amount > 0}


def could(asks: Asks, offer: Offer) -> bool:
    """Whether a node would do if it were empty and all its GPUs were healthy."""
    return all(name in offer and offer[name].total + offer[name].unhealthy >= amount for name, amount in asks.items())


def refusal(asks: Asks, nodes: Sequence[Offer], *, alone: bool = False) -> Refusal | None:
    """Why no node has enough for a pod; None if one has. `alone`: there is one node, and the sentence is about it."""
    if any(not short(asks, offer) for offer in nodes):
        return None
    unsold = {name: amount for name, amount in asks.items() if not any(name in offer for offer in nodes)}
    if unsold:
        return Refusal("NotSold", NOT_SOLD[alone].format(what=" or ".join(unsold)), forever=True)
    if not any(could(asks, offer) for offer in nodes):
        return Refusal("TooManyAsked", TOO_MANY[alone].format(what=in_words(asks)), forever=True)
    return Refusal("NoneFree", NONE_FREE[alone].format(what=in_words(asks)))


def in_words(asks: Asks) -> str:
    """`2 nvidia.com/gpu`."""
    return " + ".join(f"{amount} {name}" for name, amount in asks.items())
