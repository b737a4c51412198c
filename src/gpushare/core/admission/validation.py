"""What a new pod asks that can never be right, or that no node of this cluster can ever give.

The first is the same everywhere, and is refused: `deploy/validate.yaml` says it in CEL. The second may change with the
next node, so people are only warned. Both say the sentences that `kubectl describe pod` would show much later.
"""

from gpushare.core.explain import survey
from gpushare.core.facts import objects, request
from gpushare.core.facts.model import Refusal, Request
from gpushare.core.ledger.ledger import Ledger

NEVER_HERE = "no node of this cluster can ever run this pod: {why}"


def never(pod: objects.Pod) -> str:
    """Why the pod can run on no cluster; empty if it can."""
    asked = request.parse(pod, None)
    if not isinstance(asked, Refusal):
        return ""
    return f"{asked.message}: {asked.detail}" if asked.detail else asked.message


def never_here(ledger: Ledger, pod: objects.Pod) -> str:
    """Why no node of this ledger, which has no pods, could ever take the pod; empty if one could."""
    facts = request.facts(pod, None)
    asked = facts.request
    if not isinstance(asked, Request) or facts.node or ledger.fitting(asked, facts, list(ledger.node_names())):
        return ""
    verdict, refusal = survey.verdict_of(survey.survey(ledger, facts))
    return NEVER_HERE.format(why=refusal.message) if verdict == "never" and refusal is not None else ""
