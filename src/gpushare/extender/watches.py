"""From watches to the ledger: pods, nodes, and the ConfigMaps that list unhealthy GPUs.

Each class is the sink of one reflector. It translates objects into facts and passes them on; it decides nothing.

What happens next: a node whose GPUs changed goes to `set_node` of the ledger (`core/ledger/observed.py`), as facts that
`core/annotations` reads from the node object.
"""

from collections.abc import Callable, Set

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names, objects, request
from gpushare.core.facts.model import PodFacts, Request, Rules, Unit
from gpushare.core.ledger.holding import Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import NodesByRules
from gpushare.extender.background.learning import Learning
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics

CONTRADICTION_SECONDS = 60.0  # if capacity and annotation contradict each other for longer, the capacity is believed
MOST_REQUESTS, MOST_NAMES = 100_000, 20_000  # kept once; if there are more, sharing begins anew: old ones are freed
MOST_RULES = 1_000  # of pods, kept once; people write few different ones
SETTLE_SECONDS = 10.0  # after the first list: who binds a pod later than that is a second extender

Clock = Callable[[], float]


class Pods:
    def __init__(
        self,
        life: Life,
        announcer: Announcer,
        metrics: Metrics,
        *,
        unit: Unit | None,
        identity: str,
        clock: Clock,
    ) -> None:
        self._life, self._ledger = life, life.ledger
        self._announcer, self._metrics = announcer, metrics
        self._unit, self._identity, self._clock = unit, identity, clock
        self.learning = Learning(life)
        self._mix = self.learning.mix
        self._requests: dict[Request, Request] = {}  # equal requests of many pods, kept once
        self._rules: dict[Rules, Rules] = {}
        self._names: dict[str, str] = {}
        self._synced_at: float | None = None
        self._unbound_after_all: dict[str, PodFacts] = {}  # bound as we know it, and last shown unbound
        self.unsure: list[PodFacts] = []  # not in a list, or not as we know them: to be asked for one by one

    def upsert(self, item: objects.Pod) -> None:
        facts = self._life.facts(item, self._unit)
        self._mix.see(item, facts)
        if facts.request is None:
            self._count_without_gpus(facts, finished=item.status.phase in objects.FINISHED)
            return
        known = self._ledger.bound(facts.uid)
        # After our own binding the watch shows what is known already.
        pod = known.pod if known is not None and known.pod == facts else self._slim(facts)
        self._notice_if_unbound(pod)
        if pod.node:
            self._warn_of_second_extender(pod)
        self._observe(pod, item.metadata.resource_version)
        if pod.node:
            self._announcer.bound(pod)

    def remove(self, item: objects.Pod) -> None:
        self.gone(item.metadata.uid)

    def gone(self, uid: str) -> None:
        self._mix.gone(uid)
        self._unbound_after_all.pop(uid, None)
        self._life.forget(uid)
        self._announcer.gone(uid)

    def relisted(self, kept: Set[str]) -> None:
        unbound, self._unbound_after_all = self._unbound_after_all, {}
        waited = list(self._life.pending.shown)
        self._mix.relisted(kept)
        self.unsure += self._life.relisted(kept, unbound.keys())
        for uid, pod in unbound.items():
            if uid in kept and self._ledger.holding(uid) is None:
                self._waits_again(pod)
        for uid in waited:
            if uid not in kept:
                self._announcer.gone(uid)
        if self._synced_at is None:
            self._synced_at = self._clock()

    def made_sure(self, pod: PodFacts, before: Holding | None, current: objects.Pod | None) -> None:
        """A pod that we were unsure of was read. `before`: what it held at the time of the request."""
        if current is None or current.metadata.uid != pod.uid:
            self.gone(pod.uid)
            return
        bound = before is not None and before.state is State.BOUND and not before.seen
        if bound and before is self._ledger.holding(pod.uid) and not current.spec.node_name:
            # Read after its binding was made, and nothing has shown that since: the cluster was restored.
            self._waits_again(self._slim(self._life.facts(current, self._unit)))

    def _count_without_gpus(self, pod: PodFacts, *, finished: bool) -> None:
        """It takes CPU and memory of its node, which GPUs there need too."""
        if pod.node and not finished:
            self._ledger.use(pod.uid, self._name(pod.node), pod.cpu, pod.memory)
        else:
            self._ledger.use_no_longer(pod.uid)

    def _observe(self, pod: PodFacts, version: str) -> None:
        if self._life.observe(pod, self._clock(), version):
            self._announcer.waits(pod)
        elif pod.node or pod.finished or pod.terminating:
            self._announcer.gone(pod.uid)

    def _notice_if_unbound(self, pod: PodFacts) -> None:
        if self._ledger.bound(pod.uid) is not None and not pod.node:
            self._unbound_after_all[pod.uid] = pod
        else:
            self._unbound_after_all.pop(pod.uid, None)

    def _waits_again(self, pod: PodFacts) -> None:
        """The cluster was restored from a copy from before the binding: to be bound once more."""
        if self._life.unbind(pod, self._clock()):
            self._announcer.waits(pod)

    def _warn_of_second_extender(self, pod: PodFacts) -> None:
        identity = pod.annotation(names.EXTENDER)
        late = self._synced_at is not None and self._clock() - self._synced_at > SETTLE_SECONDS
        if late and identity and identity != self._identity and pod.uid in self._life.pending.shown:
            self._metrics.second_extender.inc()
            self._announcer.second_extender(pod, identity)

    def _slim(self, pod: PodFacts) -> PodFacts:
        """Strings, requests and rules that many pods share are kept once."""
        shared = pod.request
        if isinstance(shared, Request):
            if len(self._requests) >= MOST_REQUESTS:
                self._requests.clear()
            shared = self._requests.setdefault(shared, shared)
        rules = pod.rules
        if rules is not None:
            if len(self._rules) > MOST_RULES:
                self._rules.clear()
            rules = self._rules.setdefault(rules, rules)
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        return request.sharing(pod, shared, rules, self._names)

    def _name(self, name: str) -> str:
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        return self._names.setdefault(name, name)


class Nodes:
    """Also decides what a node is while its capacity and its annotation contradict each other."""

    def __init__(self, ledger: Ledger, announcer: Announcer, *, unit: Unit | None, clock: Clock) -> None:
        self._ledger, self._announcer, self._unit, self._clock = ledger, announcer, unit, clock
        self._nodes: dict[str, objects.Node] = {}
        self._unhealthy: dict[str, frozenset[int]] = {}
        self._contradicts_since: dict[str, float] = {}
        self.by_rules = NodesByRules()

    def upsert(self, item: objects.Node) -> None:
        name, node, rules = item.metadata.name, node_gpus.slim(item), intree.node_rules(item)
        self.by_rules.set_node(name, rules)
        cpu, memory, _ = rules.supply
        self._ledger.offer(name, cpu, memory >> 20)
        if self._nodes.get(name) == node:
            return  # a heartbeat
        self._nodes[name] = node
        if node_gpus.contradicts(item):
            self._contradicts_since.setdefault(name, self._clock())
        else:
            self._contradicts_since.pop(name, None)
        self._settle(name)

    def remove(self, item: objects.Node) -> None:
        self._forget(item.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in [name for name in self._nodes if name not in kept]:
            self._forget(name)
        self.check_units()

    def set_unhealthy(self, node: str, gpus: frozenset[int]) -> None:
        """What the ConfigMap of a node says; empty if there is none."""
        if gpus:
            self._unhealthy[node] = gpus
        elif self._unhealthy.pop(node, None) is None:
            return
        if node in self._nodes:
            self._settle(node)

    def settle_contradictions(self) -> None:
        """Those that have lasted long enough: the capacity is believed."""
        for name in list(self._contradicts_since):
            self._settle(name)

    def check_units(self) -> None:
        if self._unit is None:
            self._announcer.mixed_units(s.facts for s in self._ledger.nodes() if s.facts is not None)

    def _settle(self, name: str) -> None:
        since = self._contradicts_since.get(name)
        as_aliyun = since is not None and self._clock() - since > CONTRADICTION_SECONDS
        facts = node_gpus.read(self._nodes[name], self._unhealthy.get(name, frozenset()), as_aliyun=as_aliyun)
        if facts is None:
            self._ledger.remove_node(name)
        else:
            self._ledger.set_node(facts)

    def _forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._contradicts_since.pop(name, None)
        self.by_rules.remove_node(name)
        self._ledger.offer_no_longer(name)
        self._ledger.remove_node(name)


class ConfigMaps:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._listed: set[str] = set()

    def upsert(self, item: objects.ConfigMap) -> None:
        node = _node_of(item)
        if node:
            self._listed.add(node)
            self._nodes.set_unhealthy(node, node_gpus.unhealthy(item))

    def remove(self, item: objects.ConfigMap) -> None:
        node = _node_of(item)
        if node:
            self._listed.discard(node)
            self._nodes.set_unhealthy(node, frozenset())

    def relisted(self, kept: Set[str]) -> None:
        for node in [node for node in self._listed if names.UNHEALTHY_PREFIX + node not in kept]:
            self._listed.discard(node)
            self._nodes.set_unhealthy(node, frozenset())


def _node_of(item: objects.ConfigMap) -> str:
    name = item.metadata.name
    return name.removeprefix(names.UNHEALTHY_PREFIX) if name.startswith(names.UNHEALTHY_PREFIX) else ""
