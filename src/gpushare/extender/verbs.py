"""What kube-scheduler asks, answered from memory: filter or choose, prioritize, preempt; and inspect and explain for
people.

Bytes in, bytes out, no I/O and no await: whatever a verb reads and changes happens at one instant. The decisions are
`core.scheduling.life`; here questions are decoded, answers encoded, and refusals counted. The one verb that writes is
in `binder`.
"""

from collections.abc import Callable, Iterable, Mapping

from gpushare.core.explain import inspected, report, verdict
from gpushare.core.explain.report import Explanation
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Refusal, Unit
from gpushare.core.facts.objects import Pod
from gpushare.core.facts.vitals import Status
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.cost import CALL_LOOKS
from gpushare.core.scheduling import life
from gpushare.core.scheduling.life import Life
from gpushare.core.steps import Steps
from gpushare.extender import wire
from gpushare.extender.wire import BadRequest, FilterResult, HostPriority, MetaPod, MetaVictims, PreemptResult

BOUND_ALREADY = "it is bound to {node} already"
NO_SUCH_NODE = 'no node "{name}"'
NO_SUCH_POD = 'no pod "{name}" in namespace "{namespace}" waits for GPU memory or has some'

Answer = tuple[int, bytes]  # HTTP's status, and the body
Read = Callable[[bytes], tuple[Pod, wire.Offer]]
Ask = Callable[[PodFacts, wire.Offer, float], life.Answer]


class Verbs:
    def __init__(
        self,
        life: Life,
        *,
        unit: Unit | None,
        clock: Callable[[], float],
        cannot_answer: Callable[[str], str],
        count_refusal: Callable[[str], None],
        doing: Callable[[str], Status | None] = lambda _: None,
    ) -> None:
        self._life, self._ledger = life, life.ledger
        self._unit, self._clock = unit, clock
        self._cannot_answer = cannot_answer  # why a pod cannot be answered now, by uid; passes by itself
        self._count_refusal = count_refusal  # by code
        self._doing = doing  # what the GPUs of a node do, by its name; only fresh figures

    def filter(self, body: bytes) -> bytes:
        return self._ask(body, wire.read_args, self._life.filter)

    def choose(self, body: bytes) -> bytes:
        return self._ask(body, wire.read_few, self._life.choose)

    def _ask(self, body: bytes, read: Read, ask: Ask) -> bytes:
        try:
            sent, offer = read(body)
        except BadRequest as error:
            return _error(str(error))
        pod = self._life.asked(sent, self._unit)
        problem = self._problem(pod.uid)
        if problem:
            return _error(problem)  # an Error is retried after a moment; a refusal would wait for an event
        if names.ONLY_ASKED in (sent.metadata.annotations or ()):
            return wire.encode(offer.result([], {}, dict.fromkeys(offer.names, names.ASKED)))
        answer = ask(pod, offer, self._clock())
        if answer.fits:
            return wire.encode(offer.result(answer.fits, {}, {}))
        if answer.invalid is not None:
            self._count_refusal(answer.invalid.code)
            return wire.encode(offer.result([], {}, dict.fromkeys(offer.names, answer.invalid.message)))
        for code in _codes(answer.refusals) | _codes(answer.resolvable):
            self._count_refusal(code)
        return wire.encode(offer.result([], _messages(answer.resolvable), _messages(answer.refusals)))

    def prioritize(self, body: bytes) -> bytes:
        try:
            sent, offer = wire.read_args(body)
        except BadRequest:
            return b"[]"
        pod = self._life.asked(sent, self._unit)
        scores = self._life.prioritize(pod, offer, self._clock()) if not self._problem(pod.uid) else []
        return wire.encode([HostPriority(node, points) for node, points in scores])

    def preempt(self, body: bytes) -> bytes:
        try:
            args = wire.read_preempt(body)
        except BadRequest:
            return b"{}"
        assert args.pod is not None
        pod, victims = self._life.asked(args.pod, self._unit), args.victims()
        if isinstance(pod.request, Refusal) or self._cannot_answer(pod.uid):
            return b"{}"
        chosen = {node: [victim.uid for victim in one.pods or ()] for node, one in victims.items()}
        answer = {}
        for node, added in self._life.preempt(pod, chosen).items():
            # No budgets are read here: each pod we add counts as if it broke one.
            pods = [MetaPod(uid) for uid in (*chosen[node], *added)]
            answer[node] = MetaVictims(pods, victims[node].violations + len(added))
        return wire.encode(PreemptResult(answer))

    def inspect(self, name: str | None) -> tuple[int, bytes]:
        """The JSON of Aliyun's gpushare: what is taken, by node, GPU and pod."""
        states: Iterable[NodeState] = self._ledger.nodes()
        if name is not None:
            state = self._ledger.node(name)
            if state is None or state.facts is None:
                return 404, wire.encode({"nodes": [], "error": NO_SUCH_NODE.format(name=name[:253])})
            states = [state]
        views = [inspected.inspected(state, self._doing(state.name)) for state in states if state.facts is not None]
        return 200, wire.encode({"nodes": sorted(views, key=lambda view: str(view["name"]))})

    def explain(self, namespace: str, name: str) -> Steps[Answer]:
        """All there is to say about a pod, in short steps: a scheduler may ask something meanwhile."""
        pod = self._life.pending.find(namespace, name) or self._holder(namespace, name)
        if pod is None:
            message = NO_SUCH_POD.format(name=name[:253], namespace=namespace[:253])
            return 404, wire.encode({"version": report.VERSION, "error": message})
        return 200, wire.encode((yield from self._explain(pod)))

    def explain_pod(self, body: bytes) -> Steps[Answer]:
        """A pod that may not exist yet: what would become of it? It is judged exactly as it is sent. One without the
        env of the admission policy goes to no node that pins directly, whatever the policy would make of it: send what
        a dry run answers, as `gpushare why -f --extender` does."""
        try:
            pod = self._life.facts(wire.read_pod(body), self._unit)
        except BadRequest as error:
            return 200, wire.encode({"version": report.VERSION, "error": str(error)})
        return 200, wire.encode((yield from self._explain(pod)))

    def _explain(self, pod: PodFacts) -> Steps[Explanation]:
        allowed = self._life.reach.allowed(pod)
        barred = () if allowed is None else self._ledger.node_names() - allowed
        return verdict.explaining(
            self._ledger,
            pod,
            barred=barred,
            policy=self._life.policy,
            node_points=self._life.node_points,
            looks=CALL_LOOKS,
        )

    def _problem(self, uid: str) -> str:
        """Why a pod cannot be answered now. A scheduler that has not seen a binding yet asks about a bound pod."""
        bound = self._ledger.bound(uid)
        if bound is not None:
            return BOUND_ALREADY.format(node=bound.node)
        return self._cannot_answer(uid)

    def _holder(self, namespace: str, name: str) -> PodFacts | None:
        pods = (holding.pod for holding in self._ledger.holdings())
        return next((pod for pod in pods if pod.name == name and pod.namespace == namespace), None)


def _codes(refusals: Mapping[str, Refusal]) -> set[str]:
    return {refusal.code for refusal in refusals.values()}


def _messages(refusals: Mapping[str, Refusal]) -> dict[str, str]:
    return {node: refusal.message for node, refusal in refusals.items()}


def _error(text: str) -> bytes:
    return wire.encode(FilterResult(None, [], {}, {}, text))
