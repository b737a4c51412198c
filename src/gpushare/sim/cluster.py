"""The nodes of a trace in a ledger of the extender, and pods that are placed there by its own ranking.

kube-scheduler's part is small here: a node is offered if its CPU and memory are enough, and if the pod may use its GPU
models. It places pods without GPUs too; in a replay the policy does that, as far as it looks at CPU. Pure.
"""

from collections.abc import Collection, Iterable, Sequence

from gpushare.core.facts import kinds
from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Refusal, Request, Role, Rules, Share
from gpushare.core.facts.objects import Expression, Term
from gpushare.core.facts.packing.model import Ask, View
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.supplies import Supplies
from gpushare.core.order.offer import Offer
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.reach import NodesByRules, Reach
from gpushare.sim.trace import Node, Pod
from gpushare.sim.without_gpus import NodesByCpu

NO_HURRY = 1 << 60  # looks at GPUs
MODEL_LABEL = "gpu-model/"  # each node has a label for each of its models


class Cluster:
    """`ranks`: of nodes that are equally good the one with the lowest rank is taken."""

    def __init__(self, nodes: Sequence[Node], ranks: Sequence[int], policy: str) -> None:
        self.ledger, self.policy = Ledger(), POLICIES[policy]
        self._rules = NodesByRules()
        self.reach = Reach(self._rules.allowed, self._rules.open_to)
        self.held = 0  # units of GPU memory that pods hold
        digits = len(str(len(nodes)))
        for node, rank in zip(nodes, ranks, strict=True):
            self._add(node, f"{rank:0{digits}}-{node.name}")
        self.names = tuple(sorted(self.ledger.node_names()))
        self._by_cpu = NodesByCpu(self.ledger.supplies, self.names)
        self._nodes: dict[str, str] = {}  # by uid

    def _add(self, node: Node, name: str) -> None:
        gpus = tuple([Gpu(i, "", gpu.memory_mib, model=gpu.model) for i, gpu in enumerate(node.gpus)])
        self.ledger.set_node(NodeFacts(name, "MiB", Pin.DIRECT, gpus))
        self.ledger.offer(name, node.cpu_milli, node.memory_mib)
        labels = {MODEL_LABEL + gpu.model: "" for gpu in node.gpus}
        self._rules.set_node(name, NodeRules(name, labels, (), False))

    def place(self, pod: PodFacts) -> str | None:
        """The node that the pod is on from now on; None: no node takes it."""
        offer = _Offer(self.names, self.ledger.supplies, pod, self._rules.allowed(pod) if pod.rules else None)
        node = self._best(pod, offer)
        if node is None:
            return None
        if isinstance(pod.request, Request):
            places = self.ledger.reserve(pod, node, self.policy.name)
            assert not isinstance(places, Refusal), places
        else:
            self.ledger.use(pod.uid, node, pod.cpu, pod.memory)
        self._nodes[pod.uid] = node
        self.held += self._held_by(pod.uid)
        self._by_cpu.changed(node)
        return node

    def _best(self, pod: PodFacts, offer: Offer) -> str | None:
        request = pod.request if isinstance(pod.request, Request) else None
        if request is None and self.policy.packing is None and not self.policy.by_chance:
            return self._by_cpu.first(offer, pod.cpu, emptiest_first=self.policy.emptiest_first)
        return ranking.first(self.ledger, request, pod, offer, self.policy.name, Budget(NO_HURRY))

    def end(self, pod: PodFacts) -> str:
        """The pod is there no longer. Returns the node where it was."""
        self.held -= self._held_by(pod.uid)
        self.ledger.forget(pod.uid)
        self.ledger.use_no_longer(pod.uid)
        node = self._nodes.pop(pod.uid)
        self._by_cpu.changed(node)
        return node

    def _held_by(self, uid: str) -> int:
        """Units of GPU memory."""
        holding = self.ledger.holding(uid)
        return sum([charge.units for charge in holding.charges or ()]) if holding is not None else 0

    def view(self, node: str) -> View:
        """What is left of a node."""
        view = self.ledger.view(node, _NOBODY)
        assert view is not None
        return view

    def could_take(self, nodes: Iterable[str], pod: PodFacts) -> bool:
        """Whether it is worth to ask for the pod again, after something ended on these nodes: a quick look."""
        ask = Ask.of(pod)
        return any(_has_room(self.view(node), ask) and self._rules.open_to(pod, node) for node in nodes)


def _has_room(view: View, ask: Ask) -> bool:
    if ask.cpu > view.cpu or ask.memory > view.memory:
        return False
    able = [free for free, total in zip(view.free, view.totals, strict=True) if free >= (ask.units or total)]
    return len(able) >= ask.gpus


class _Offer(Offer):
    """Nodes are looked at when they are asked for: nearly always the first of an order will do."""

    def __init__(
        self, names: Sequence[str], supplies: Supplies, pod: PodFacts, allowed: Collection[str] | None
    ) -> None:
        super().__init__(())
        self._all, self._left, self._allowed = names, supplies.left, allowed
        self._cpu, self._memory = pod.cpu, pod.memory

    @property
    def names(self) -> Sequence[str]:
        return [name for name in self._all if name in self]

    def __contains__(self, node: str) -> bool:
        if self._allowed is not None and node not in self._allowed:
            return False
        cpu, memory = self._left(node)
        return cpu >= self._cpu and memory >= self._memory

    def of_these(self, nodes: Iterable[str]) -> list[str]:
        """All are worth a look: there is no hurry, and a node that is looked at is known until it changes."""
        return list(nodes)

    def few(self, most: int) -> Collection[str] | None:
        return None


class Pods:
    """Pods of a trace as the core knows them. What is equal of them is made once."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, int], Request] = {}
        self._rules: dict[tuple[str, ...], Rules] = {}

    def facts(self, pod: Pod, uid: str) -> PodFacts:
        rules = self._rules_for(pod.models) if pod.models else None
        request = self._request(pod.gpus, pod.gpu_memory_mib) if pod.gpus else None
        return PodFacts(uid, "default", pod.name, request, rules=rules, cpu=pod.cpu_milli, memory=pod.memory_mib)

    def _request(self, gpus: int, each: int) -> Request:
        if (gpus, each) not in self._requests:
            kind = kinds.MEMORY if each else kinds.WHOLE
            share = Share("main", 0, Role.APP, kind, each * gpus, gpus)
            self._requests[gpus, each] = Request((share,), Pin.DIRECT, "MiB")
        return self._requests[gpus, each]

    def _rules_for(self, models: tuple[str, ...]) -> Rules:
        if models not in self._rules:
            terms = [Term((Expression(MODEL_LABEL + model, "Exists"),)) for model in models]
            self._rules[models] = Rules(terms=tuple(terms))
        return self._rules[models]


_NOBODY = PodFacts("", "", "", None)
