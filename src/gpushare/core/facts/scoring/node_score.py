"""The points of a node, besides its GPUs, as KETI's GPU-Scheduler gives them: up to 25 for each of four stages.

They compare what a pod asks with all that a node has: what other pods ask there counts nothing. kube-scheduler has
left out nodes without room before anybody is asked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpushare.core.facts import affinity, intree, objects
from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Needs
from gpushare.core.facts.scoring.keti import rounded
from gpushare.core.facts.scoring.load import Terms

STAGES = 4
MOST_RULES = 256  # of one pod: longer ones would be compared with every node, and count nothing
TERMS_LOOKS = 10  # what it costs to work out the points of a node, besides rules, in GPUs looked at
WEIGHTS = {intree.CPU: 40, intree.MEMORY: 40, intree.STORAGE: 20}  # of 100


class NodePoints(NamedTuple):
    """The points of nodes themselves, for pods with such needs: of those named, as far as so many looks go, and of
    others that are known anyway; or what those of one consist of."""

    of_these: Callable[[Needs, Sequence[str], int], Mapping[str, int]]
    terms: Callable[[Needs, str], Terms]


def needs(pod: objects.Pod) -> Needs:
    asked = intree.needs(pod)
    cpu, memory, storage = (asked.get(name, 0) for name in WEIGHTS)
    preferred, tolerations = pod.spec.preferred_terms, pod.spec.tolerations or ()
    if len(preferred) + len(tolerations) > MOST_RULES or sum(map(_size, preferred)) > MOST_RULES:
        preferred = tolerations = ()
    return Needs((cpu, memory, storage), preferred, tolerations)


def _size(term: objects.PreferredTerm) -> int:
    expressions = (*(term.preference.match_expressions or ()), *(term.preference.match_fields or ()))
    return sum([1 + len(expression.values or ()) for expression in expressions])


def looks(needs: Needs) -> int:
    """What it costs to compare them with one node."""
    return TERMS_LOOKS + len(needs.tolerations) + sum(map(_size, needs.preferred))


def terms(needs: Needs, node: NodeRules) -> Terms:
    return (
        ("LeastRequested", rounded(_least_requested(needs.amounts, node.supply) / STAGES)),
        ("BalancedResourceAllocation", rounded(_balanced(needs.amounts, node.supply) / STAGES)),
        ("NodeAffinity", rounded(_affinity(needs.preferred, node) / STAGES)),
        ("TaintToleration", rounded(_tolerated(needs.tolerations, node.soft_taints) / STAGES)),
    )


def _least_requested(asked: tuple[int, ...], has: tuple[int, ...]) -> float:
    rows = zip(WEIGHTS.values(), asked, has, strict=True)
    return sum([weight * (total - amount) / total for weight, amount, total in rows if 0 < total >= amount])


def _balanced(asked: tuple[int, ...], has: tuple[int, ...]) -> float:
    """All that a pod does not ask for is a part of 0, also if the node has none of it."""
    parts = [amount / total if total else float(amount > 0) for amount, total in zip(asked, has, strict=True)]
    if max(parts) >= 1:
        return 0.0
    mean = sum(parts) / len(parts)
    return (1 - sum([(part - mean) ** 2 for part in parts]) / len(parts)) * 100


def _affinity(preferred: tuple[objects.PreferredTerm, ...], node: NodeRules) -> float:
    """The average of the weights that the node meets: KETI's own way, in which a weak one more is worth less."""
    met = [one.weight for one in preferred if affinity.meets(one.preference, node.labels, node.name)]
    return sum(met) / len(met) if met else 0.0


def _tolerated(tolerations: tuple[objects.Toleration, ...], taints: tuple[objects.Taint, ...]) -> int:
    return 100 if all(any(one.covers(taint) for one in tolerations) for taint in taints) else 0
