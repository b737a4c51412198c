"""Why a pod waits, or where it runs: exactly what `gpushare why` says, as data and as text.

No I/O. Some policies have to teach the ledger something before they can choose: that is done with a ledger of its own.
"""

from collections.abc import Callable, Sequence

from gpushare.core.explain.report import Explanation
from gpushare.core.facts import request
from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers.body import Body
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import limited_rights, of_pod, placing, pod_details
from gpushare.view.why.pod_details import Event, Pod
from gpushare.view.why.text import page
from gpushare.view.why.text.page import Style

NO_SUCH_POD = 'no pod "{name}" in namespace {namespace}, or you may not list the pods there'


class WhyPage(Body):
    """`ways`: what would help, one sentence each."""

    explanation: Explanation
    text: str
    ways: list[str]


def find(cluster: Snapshot, namespace: str, name: str) -> Pod | None:
    """The pod as it stands in the cluster."""
    pods = (pod for pod in cluster.pods if pod.metadata.name == name and pod.metadata.namespace == namespace)
    found = next(pods, None)
    assert found is None or isinstance(found, Pod)
    return found


def explain(
    cluster: Snapshot, isolated: Callable[[], Snapshot], pod: Pod, events: Sequence[Event], policy: str = ""
) -> Explanation:
    """With all names. `isolated`: makes the same snapshot with a ledger of its own; it is called only if the policy
    needs it. `events`: about the pod, if it `waits`. `policy`: that of the extender; empty: the default."""
    facts, now = request.facts(pod, None), cluster.now
    quote = pod_details.quote(pod, events if of_pod.waits(pod) else ())
    if (same := of_pod.alone(pod, facts, quote, now)) is not None:
        return same
    found = None
    if of_pod.waits(pod) and (placing.gives_points(facts, policy) or placing.packs(facts, policy)):
        cluster = isolated()
        found = cluster.doing if placing.gives_points(facts, policy) else None
    known = of_pod.gather(cluster, pod, facts, policy, found)
    return of_pod.explain(known, quote, cluster.doing.get(pod.spec.node_name or ""), now)


def namespaces(explanation: Explanation) -> frozenset[str]:
    """Those of the pods that it names. The reader has to be allowed to see that of the pod itself."""
    return frozenset({explanation.pod.namespace, *limited_rights.named(explanation)})


def answer(explanation: Explanation, now: float, allowed: Allowed) -> WhyPage:
    shown = explanation if allowed is None else limited_rights.redacted(explanation, allowed)
    return WhyPage(shown, page.text(shown, Style(now)), page.sentences(shown, exists=True))
