"""GPUs that are kept for pods which have waited too long, as an explanation shows them."""

from collections.abc import Iterable

from gpushare.core.explain.report import KeptView
from gpushare.core.facts.model import PodFacts
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import kept_place


def view(ledger: Ledger, pod: PodFacts) -> KeptView | None:
    """What is kept for a pod, for people."""
    kept = ledger.kept_for(pod.uid)
    short = kept_place.missing(ledger, kept) if kept is not None else None
    facts = ledger.facts(kept.node) if kept is not None else None
    if kept is None or short is None or facts is None:
        return None
    gpus = [facts.gpus[charge.gpu].index for charge in kept.charges(facts) or ()]
    return KeptView(kept.node, gpus, short.units, facts.unit, short.slots)


def served_before(ledger: Ledger, pod: PodFacts, nodes: Iterable[str]) -> list[str]:
    """The pods whose turn comes first: what this pod could use on these nodes is kept for them."""
    there = frozenset(nodes)
    kept = [other for other in ledger.kept() if other.node in there]
    others = {other.pod.uid: other.pod for other in kept if other.pod.priority >= pod.priority}
    others.pop(pod.uid, None)
    return sorted(f"{other.namespace}/{other.name}" for other in others.values())
