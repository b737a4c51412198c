"""What may have changed the luck of a refused pod: which changes of a cluster make the stand-in scheduler try it again.

Pure. `sinks` says what changed, `queue` asks whether that could help. As in kube-scheduler, a pod that an extender
refused is tried again after any change, one refused by a check of the scheduler's own only after one that could pass
this check, and one that met an error by time alone.
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
    """A pod that was on a node, or was about to be, has ended or is gone."""


@dataclass(frozen=True)
class PodEdited:
    """The refused pod itself."""

    old: Pod
    new: Pod


@dataclass(frozen=True)
class NodeChanged:
    """`old` is None for a new node, `new` for one that is gone."""

    old: Node | None
    new: Node | None


Change = PodCame | PodLeft | PodEdited | NodeChanged


def matters(old: Node, new: Node) -> bool:
    """Whether a node changed in anything that decides where pods go. Its heartbeats do not count."""
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
    """Whether a pod that was refused by these may be placed after this change."""
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
    asked = (*intree.needs(pod), intree.PODS)
    return code == intree.INSUFFICIENT and any(after.get(name, 0) > before.get(name, 0) for name in asked)


def _failing(pod: Pod, node: Node) -> set[str]:
    """The checks that even the empty node would not pass."""
    return {obstacle.code for obstacle in intree.obstacles(pod, node, {})}
