"""What kube-scheduler asks, answered from memory: filter or choose, prioritize, preempt; and inspect and explain for
people.

Bytes in, bytes out, no I/O and no await: whatever a verb reads and changes happens at one instant. A decision counts
from the moment it is made: the node that will be chosen is assumed before the answer leaves. `server` calls these,
`binder` does the one verb that writes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from gpushare.core.explain import inspected, verdict
from gpushare.core.explain.report import Explanation
from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts, Refusal, Request, Unit
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling import preempt, ranking
from gpushare.core.scheduling.pending import KnownPods
from gpushare.core.scheduling.wakeups import Waiting
from gpushare.core.steps import Steps
from gpushare.extender import wire
from gpushare.extender.metrics import Metrics
from gpushare.extender.wire import BadRequest, FilterResult, HostPriority, MetaPod, MetaVictims, PreemptResult

BOUND_ALREADY = "it is bound to {node} already"
NO_SUCH_NODE = 'no node "{name}"'
Answer = tuple[int, bytes]  # HTTP's status, and the body
NO_SUCH_POD = 'no pod "{name}" in namespace "{namespace}" waits for GPU memory or has some'


class Verbs:
    def __init__(
        self,
        ledger: Ledger,
        known: KnownPods,
        waiting: Waiting,
        metrics: Metrics,
        *,
        policy: str,
        unit: Unit | None,
        clock: Callable[[], float],
        cannot_answer: Callable[[str], str],
        allowed: Callable[[PodFacts], Collection[str] | None],
    ) -> None:
        self._ledger, self._known, self._waiting, self._metrics = ledger, known, waiting, metrics
        self._policy, self._unit, self._clock = policy, unit, clock
        self._cannot_answer = cannot_answer  # why a pod cannot be answered now, by uid; passes by itself
        self._allowed = allowed  # the nodes that are open to a pod; None: all

    def filter(self, body: bytes) -> bytes:
        """All nodes that fit: others have a say in which is taken."""
        return self._filter(body, self._ledger.fitting)

    def choose(self, body: bytes) -> bytes:
        """As filter, but only the best node: the scheduler need not ask for scores, nor compute any itself."""
        return self._filter(body, self._best)

    def _filter(self, body: bytes, pick: Callable[[Request, PodFacts, Sequence[str], Budget], list[str]]) -> bytes:
        try:
            sent, offer = wire.read_args(body)
        except BadRequest as error:
            return _error(str(error))
        pod = request.facts(sent, self._unit)
        problem = self._problem(pod.uid)
        if problem:
            return _error(problem)  # an Error is retried after a moment; a refusal would wait for an event
        if not isinstance(pod.request, Request):
            return wire.encode(self._without_request(pod, offer))
        self._ledger.release(pod.uid)
        budget = Budget(CALL_LOOKS)
        fits = pick(pod.request, pod, offer.names, budget)
        if not fits:
            return wire.encode(self._refuse(pod, pod.request, offer, budget))
        self._remember(pod)
        if len(fits) == 1:
            self._assume(pod, pod.request, fits[0])  # prioritize is not asked about a single node
        return wire.encode(offer.result(fits, {}, {}))

    def _best(self, asked: Request, pod: PodFacts, among: Sequence[str], budget: Budget) -> list[str]:
        best = ranking.first(self._ledger, asked, pod, among, asked.policy or self._policy, budget)
        # A long search may give up in the order of a policy although there is room: then all that fit are answered.
        return [best] if best is not None else self._ledger.fitting(asked, pod, among, budget)

    def prioritize(self, body: bytes) -> bytes:
        try:
            sent, offer = wire.read_args(body)
        except BadRequest:
            return b"[]"
        pod = request.facts(sent, self._unit)
        if not isinstance(pod.request, Request) or self._problem(pod.uid):
            return b"[]"
        self._ledger.release(pod.uid)
        policy = pod.request.policy or self._policy
        scores = ranking.best(self._ledger, pod.request, pod, offer.names, policy, Budget(CALL_LOOKS))
        if scores:
            self._remember(pod)
            self._assume(pod, pod.request, scores[0][0])
        return wire.encode([HostPriority(node, points) for node, points in scores])

    def preempt(self, body: bytes) -> bytes:
        try:
            args = wire.read_preempt(body)
        except BadRequest:
            return b"{}"
        assert args.pod is not None
        pod = request.facts(args.pod, self._unit)
        if isinstance(pod.request, Refusal) or self._cannot_answer(pod.uid):
            return b"{}"
        if pod.request is None:
            return wire.encode(PreemptResult(args.victims()))
        answer, budget = {}, Budget(CALL_LOOKS)
        for node, given in args.victims().items():
            state = self._ledger.node(node)
            chosen = [victim.uid for victim in given.pods or ()]
            added = preempt.victims(state, pod, chosen, budget) if state is not None else None
            if added is not None:
                # No budgets are read here: each pod we add counts as if it broke one.
                pods = [MetaPod(uid) for uid in (*chosen, *added)]
                answer[node] = MetaVictims(pods, given.violations + len(added))
        return wire.encode(PreemptResult(answer))

    def inspect(self, name: str | None) -> tuple[int, bytes]:
        """The original's JSON: what is taken, by node, GPU and pod."""
        states: Iterable[NodeState] = self._ledger.nodes()
        if name is not None:
            state = self._ledger.node(name)
            if state is None or state.facts is None:
                return 404, wire.encode({"nodes": [], "error": NO_SUCH_NODE.format(name=name[:253])})
            states = [state]
        views = [inspected.inspected(state) for state in states if state.facts is not None]
        return 200, wire.encode({"nodes": sorted(views, key=lambda view: str(view["name"]))})

    def explain(self, namespace: str, name: str) -> Steps[Answer]:
        """All there is to say about a pod, in short steps: a scheduler may ask something meanwhile."""
        pod = self._known.find(namespace, name) or self._holder(namespace, name)
        if pod is None:
            message = NO_SUCH_POD.format(name=name[:253], namespace=namespace[:253])
            return 404, wire.encode({"version": verdict.VERSION, "error": message})
        return 200, wire.encode((yield from self._explain(pod)))

    def explain_pod(self, body: bytes) -> Steps[Answer]:
        """A pod that may not exist yet: what would become of it? It is judged exactly as it is sent. One without the
        env of the admission policy goes to no node that pins directly, whatever the policy would make of it: send what
        a dry run answers, as `gpushare why -f --extender` does."""
        try:
            pod = request.facts(wire.read_pod(body), self._unit)
        except BadRequest as error:
            return 200, wire.encode({"version": verdict.VERSION, "error": str(error)})
        return 200, wire.encode((yield from self._explain(pod)))

    def _explain(self, pod: PodFacts) -> Steps[Explanation]:
        allowed = self._allowed(pod)
        barred = () if allowed is None else self._ledger.node_names() - allowed
        return verdict.explaining(self._ledger, pod, barred=barred, policy=self._policy, looks=CALL_LOOKS)

    def _problem(self, uid: str) -> str:
        """Why a pod cannot be answered now. One that we have bound is asked about by a scheduler that has not seen it
        yet: an assumption beside its binding would be counted for ever."""
        bound = self._ledger.bound(uid)
        if bound is not None:
            return BOUND_ALREADY.format(node=bound.node)
        return self._cannot_answer(uid)

    def _without_request(self, pod: PodFacts, offer: wire.Offer) -> FilterResult:
        if pod.request is None:
            return offer.result(offer.names, {}, {})
        assert isinstance(pod.request, Refusal)
        self._metrics.refused(pod.request.code)
        return offer.result([], {}, dict.fromkeys(offer.names, pod.request.message))

    def _refuse(self, pod: PodFacts, asked: Request, offer: wire.Offer, budget: Budget) -> FilterResult:
        refusals = self._ledger.refusals(asked, pod, offer.names, budget)
        for code in {refused.code for refused in refusals.values()}:
            self._metrics.refused(code)
        if _can_be_remembered(pod):
            self._known.tell(pod)
            self._waiting.refuse(pod, offer.names)
        # Nodes in FailedNodes are tried for preemption, always without result; only the pod's own nominated node
        # must stay there, or the scheduler drops the nomination.
        resolvable = refusals.pop(pod.nominated, None)
        failed = {pod.nominated: resolvable.message} if resolvable is not None else {}
        return offer.result([], failed, {node: refused.message for node, refused in refusals.items()})

    def _remember(self, pod: PodFacts) -> None:
        if _can_be_remembered(pod):
            self._known.tell(pod)

    def _assume(self, pod: PodFacts, asked: Request, node: str) -> None:
        if _can_be_remembered(pod):
            places = self._ledger.assume(pod, node, asked.policy or self._policy, self._clock())
            if not isinstance(places, Refusal):
                self._waiting.gone(pod.uid)

    def _holder(self, namespace: str, name: str) -> PodFacts | None:
        found = (holding.pod for holding in self._ledger.holdings())
        return next((pod for pod in found if pod.name == name and pod.namespace == namespace), None)


def _can_be_remembered(pod: PodFacts) -> bool:
    """A pod that exists. What has no uid is answered, and changes nothing."""
    return bool(pod.uid and pod.name and pod.namespace) and not pod.node and not pod.terminating


def _error(text: str) -> bytes:
    return wire.encode(FilterResult(None, [], {}, {}, text))
