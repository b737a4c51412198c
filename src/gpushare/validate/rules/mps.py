"""The MPS daemon, where the node sells MPS shares or MPS replicas: `gpushare mps` says how it is."""

from typing import Final

from gpushare.core.facts.model import NodeFacts
from gpushare.core.facts.mps import status
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

BY_MPS: Final = "mps"  # how replicas of a GPU share it
NOT_SOLD: Final = "this node sells no MPS shares"
NOT_OURS: Final = "gpushare mps does not run here: nobody says how the daemon is"
SERVES: Final = "the MPS daemon serves clients"
SEE: Final = "kubectl logs of gpushare-mps on this node; is the node labelled gpushare.io/mps=true?"


def judged(facts: NodeFacts | None, content: bytes | None, now: float) -> Verdict:
    """`content`: of the status file; None: there is none. `now`: seconds since 1970."""
    replicas = [sold.replicas for sold in facts.sold if sold.sharing == BY_MPS] if facts is not None else []
    if facts is None or not (replicas or facts.slots):
        return verdict.skipped(NOT_SOLD)
    if content is None and not replicas and not facts.only_mps:
        return verdict.skipped(NOT_OURS)
    problem = status.problem(content, now, max(replicas, default=1))
    return verdict.failed(problem, SEE) if problem else verdict.passed(SERVES)
