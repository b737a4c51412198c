"""Which pods come: counted by what they ask and where they may go. Policies that pack expect more of the same.

Each pod counts once, when it is first seen. Pods without GPUs count where they take CPU and memory from GPUs: on nodes
that share some. Those of a DaemonSet do not, since they come with their node. What came long ago fades: the counts are
halved as soon as they are several times the pods that are there. So the mix follows what people run now, and has a
bounded size. After a restart it is what the pods that are there say.
"""

from collections.abc import Mapping, Set
from heapq import nsmallest

from gpushare.core.facts import node_rules, objects
from gpushare.core.facts.model import Pin, PodFacts, Request, Rules
from gpushare.core.facts.packing.model import Ask, GpuClass, Mixture, PodType
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.reach import ANYWHERE, Reach
from gpushare.core.steps import Steps, finish

REFRESH_AFTER, REFRESH_GROWTH = 10, 0.35  # policies learn anew when so many more pods came, and this part of all
FADES_AT, FEWEST = 4, 1_000  # the counts are halved at so many times the pods that are there, or at least as many
MOST_SORTS = 2_000  # of pods that policies learn of: those with most demand
STEP_LOOKS = 200  # nodes or pods looked at in one step

Sort = tuple[Ask, Rules | None]  # pods that ask the same and may go to the same nodes


class Mix:
    def __init__(self) -> None:
        self._counts: dict[Sort, int] = {}
        self._sum = 0  # of the counts
        self._there: set[str] = set()  # uids that were counted, as long as the pods exist
        self._without_gpus: dict[str, tuple[str, Ask]] = {}  # by uid, with their nodes: which may not be known yet
        self._came = 0
        self._refresh_at = 1

    def see(self, item: objects.Pod, pod: PodFacts) -> None:
        """The API server shows a pod."""
        if pod.uid in self._there:
            return
        if isinstance(pod.request, Request):
            if any(share.kind.slots for share in pod.request.shares):
                return  # what an MPS share takes depends on the GPU
            # Not the rules of the facts: a bound pod has none, and counts like one that waits.
            self.add(pod.uid, Ask.of(pod), node_rules.read(item))
        elif pod.request is None and pod.node and (pod.cpu or pod.memory) and not item.metadata.comes_with_node:
            self._without_gpus[pod.uid] = pod.node, Ask.of(pod)

    def add(self, uid: str, ask: Ask, rules: Rules | None) -> None:
        """A pod is seen. It counts once, however often it is."""
        if uid in self._there:
            return
        self._there.add(uid)
        self._came += 1
        self._sum += 1
        self._counts[ask, rules] = self._counts.get((ask, rules), 0) + 1
        if self._sum > FADES_AT * max(len(self._there), FEWEST):
            self._fade()

    def gone(self, uid: str) -> None:
        """The pod exists no longer. That it came counts."""
        self._there.discard(uid)
        self._without_gpus.pop(uid, None)

    def relisted(self, kept: Set[str]) -> None:
        """Only these pods exist."""
        self._there &= kept
        for uid in self._without_gpus.keys() - kept:
            del self._without_gpus[uid]

    def due(self) -> bool:
        """Whether so many pods came since policies learned that they should learn anew."""
        return self._came >= self._refresh_at

    def learned(self) -> None:
        """Policies know the mixture. Only then: to work one out and not to use it puts off nothing."""
        self._refresh_at = self._came + REFRESH_AFTER + int(REFRESH_GROWTH * self._sum) if self._came else 1

    def mixture(self, ledger: Ledger, reach: Reach = ANYWHERE) -> Mixture:
        """What policies learn. Pods that no node takes are left out."""
        return finish(self.mixing(ledger, reach))

    def mixing(self, ledger: Ledger, reach: Reach = ANYWHERE) -> Steps[Mixture]:
        """The same in short steps."""
        yield from self._add_without_gpus(ledger)
        gpus, nodes = yield from _gpus(ledger)
        counts = _commonest(self._counts)
        offered = [ledger.supplies.offered(name) for names in nodes.values() for name in names]
        everywhere = frozenset[str]().union(*nodes)
        models: dict[Rules | None, frozenset[str]] = {}
        for rules in dict.fromkeys([rules for (ask, rules), _ in counts if ask.gpus]):
            models[rules] = yield from _models(rules, nodes, reach)
        pods: dict[tuple[Ask, frozenset[str]], int] = {}
        for number, ((ask, rules), count) in enumerate(counts):
            if number % STEP_LOOKS == 0:
                yield
            allowed = models[rules] if ask.gpus else everywhere
            if allowed or not everywhere:
                pods[ask, allowed] = pods.get((ask, allowed), 0) + count
        types = [
            PodType(ask, count, None if allowed == everywhere else allowed) for (ask, allowed), count in pods.items()
        ]
        cpu, memory = sum([cpu for cpu, _ in offered]), sum([memory for _, memory in offered])
        return Mixture(tuple(sorted(types, key=_in_order)), gpus, cpu, memory)

    def _add_without_gpus(self, ledger: Ledger) -> Steps[None]:
        pods, self._without_gpus = self._without_gpus, {}
        for number, (uid, (node, ask)) in enumerate(pods.items()):
            if number % STEP_LOOKS == 0:
                yield
            if ledger.facts(node) is not None:
                self.add(uid, ask, None)

    def _fade(self) -> None:
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
        self._sum = sum(self._counts.values())


def _commonest(counts: Mapping[Sort, int]) -> list[tuple[Sort, int]]:
    """Those with most GPUs, or with most pods if they have none."""

    def turn(row: tuple[Sort, int]) -> tuple[int, tuple[int, ...], str]:
        (ask, rules), count = row
        return -count * max(ask.gpus, 1), _amounts(ask), repr(rules)

    return list(counts.items()) if len(counts) <= MOST_SORTS else nsmallest(MOST_SORTS, counts.items(), key=turn)


def _gpus(ledger: Ledger) -> Steps[tuple[tuple[GpuClass, ...], dict[frozenset[str], list[str]]]]:
    """The GPUs of the cluster, and the names of nodes with the same models."""
    classes: dict[tuple[str, int], int] = {}
    nodes: dict[frozenset[str], list[str]] = {}
    for number, state in enumerate(list(ledger.nodes())):
        if number % STEP_LOOKS == 0:
            yield
        if state.facts is None or state.facts.pin is Pin.NVIDIA:
            continue
        for gpu in [gpu for gpu in state.facts.gpus if gpu.total]:
            classes[gpu.model, gpu.total] = classes.get((gpu.model, gpu.total), 0) + 1
        nodes.setdefault(frozenset([gpu.model for gpu in state.facts.gpus]), []).append(state.name)
    return tuple([GpuClass(*key, count) for key, count in sorted(classes.items())]), nodes


def _models(rules: Rules | None, nodes: dict[frozenset[str], list[str]], reach: Reach) -> Steps[frozenset[str]]:
    """The GPU models of nodes that are open to pods with these rules. Of nodes with the same models one is enough."""
    pod, looks = PodFacts("", "", "", None, rules=rules), 0
    allowed: set[str] = set()
    for models, names in nodes.items():
        for name in names:
            looks += 1
            if looks % STEP_LOOKS == 0:
                yield
            if reach.open_to(pod, name):
                allowed.update(models)
                break
    return frozenset(allowed)


def _in_order(kind: PodType) -> tuple[tuple[int, ...], list[str]]:
    """The order does not depend on which pod came first."""
    return _amounts(kind.ask), sorted(kind.models or ())


def _amounts(ask: Ask) -> tuple[int, ...]:
    return ask.gpus, ask.units, ask.cpu, ask.memory
