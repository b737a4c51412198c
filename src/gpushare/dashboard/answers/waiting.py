"""The pods that wait, the longest wait first, with the reason that `inspect -o json` gives.

Pure. `owner` is whose answer that is. A pod that fits waits for kube-scheduler: `why` looks at what keeps it.
"""

from collections import Counter
from typing import Any

from gpushare.core.explain import report
from gpushare.core.facts import intree
from gpushare.core.facts.model import PodFacts
from gpushare.core.steps import Steps, finish
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers.body import Body
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import waiting
from gpushare.view.why.waiting import Answer, Waiting, Waits
from gpushare.view.wording import timestamp

MOST = 1000  # in one answer


class WaitingPage(Body):
    """`pods`: those of `inspect -o json`, each with its `owner`. `codes` count all pods, also those of others."""

    count: int
    codes: dict[str, int]
    pods: list[dict[str, Any]]
    hidden: int  # pods of others
    more: int = 0  # that the reader may see, but are too many


def namespaces(cluster: Snapshot) -> frozenset[str]:
    """Those of all pods that wait."""
    return frozenset(map(_namespace, waiting.who(cluster)))


def answer(cluster: Snapshot, allowed: Allowed) -> WaitingPage:
    return finish(answering(cluster, allowed))


def answering(cluster: Snapshot, allowed: Allowed) -> Steps[WaitingPage]:
    """The same in steps: with many nodes and different pods it takes long."""
    everyone = yield from waiting.answering(cluster, waiting.who(cluster))
    mine = [one for one in everyone if is_allowed(allowed, one.namespace)]
    mine.sort(key=lambda one: (timestamp(one.created), one.namespace, one.name))
    codes = Counter(one.answer.code for one in everyone)
    return WaitingPage(
        count=len(everyone),
        codes=dict(codes.most_common()),
        pods=[_row(one) for one in mine[:MOST]],
        hidden=len(everyone) - len(mine),
        more=max(len(mine) - MOST, 0),
    )


def _row(one: Waiting) -> dict[str, Any]:
    return waiting.view(one) | {"owner": _owner(one.answer)}


def _owner(answer: Answer) -> str:
    return report.SCHEDULER if answer.by_count or answer.code == report.FITS else report.GPUSHARE


def _namespace(pod: Waits) -> str:
    if isinstance(pod, PodFacts):
        return pod.namespace
    assert isinstance(pod, intree.Pod)
    return pod.metadata.namespace
