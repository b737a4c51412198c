"""Which changes of the cluster could help a refused pod, so that the stand-in scheduler tries it again. Pure.

As in kube-scheduler a pod that an extender refused is tried again after any change, a pod that one of the scheduler's
own checks refused after a change that could pass this check, and a pod that met an error only after some time.
"""

from collections.abc import Set
from dataclasses import dataclass

from gpushare.core.facts import intree
from gpushare.core.facts.intree import Node, Pod

EXTENDER = "Extender"  # beside the codes of intree's obstacles


@dataclass(frozen=True)
class PodCame:
    """A pod was bound, or a bound one changed."""


@dataclass(frozen=True)
class PodLeft:
    """A pod that was bound or assumed has ended or is gone."""


@dataclass(frozen=True)
class PodEdited:
    """The refused pod itself was changed."""

    old: Pod
    new: Pod


@dataclass(frozen=True)
class NodeChanged:
    """`old` is None for a new node, `new` for one that is gone."""

    old: Node | None
    new: Node | None


Change = PodCame | PodLeft | PodEdited | NodeChanged


def matters(old: Node, new: Node) -> bool:
    """Whether the change of a node can decide where pods go. A heartbeat cannot."""
    lifted = old.spec.unschedulable and not new.spec.unschedulable
    return lifted or any(
        before != after
        for before, after in (
            (old.spec.taints, new.spec.taints),
            (old.status.allocatable, new.status.allocatable),
            (old.metadata.labels, new.metadata.labels),
            (old.metadata.annotations, new.metadata.annotations),
        )
    )


def could_help(change: Change, pod: Pod, refused_by: Set[str]) -> bool:
    """Whether a pod that these refused may be placed after this change."""
    if EXTENDER in refused_by:
        return True
    match change:
        case PodLeft():
            return intree.INSUFFICIENT in refused_by
        case PodEdited(old, new):  # tolerations can only be added
            tolerates_more = len(old.spec.tolerations or ()) != len(new.spec.tolerations or ())
            return tolerates_more and not refused_by.isdisjoint((intree.CORDONED, intree.TAINT))
        case NodeChanged(old_node, Node() as new_node):
            return any(_passes_now(code, pod, old_node, new_node) for code in refused_by)
    return False


def _passes_now(code: str, pod: Pod, old: Node | None, new: Node) -> bool:
    """Whether the node passes a check that it did not pass before, or offers more of what was short."""
    if code in _failing(pod, new):
        return False
    if old is None or code in _failing(pod, old):
        return True
    before, after = intree.offered(old), intree.offered(new)
    resources = (*intree.needs(pod), intree.PODS)
    return code == intree.INSUFFICIENT and any(after.get(name, 0) > before.get(name, 0) for name in resources)


def _failing(pod: Pod, node: Node) -> set[str]:
    """The checks that even the empty node would not pass."""
    return {obstacle.code for obstacle in intree.obstacles(pod, node, {})}
