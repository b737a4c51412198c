"""The life of a pod, top to bottom.

1. **Asked.** kube-scheduler asks which of the nodes it offers fit the pod: `choose`, or `filter` and `prioritize`.
2. **Refused**, if no node fits. The pod gets one reason per node and is remembered. It is woken when it may fit.
3. **Assumed**, if some nodes fit. The pod counts on the best of them at once, so that the next pod sees it.
4. **Preempting**, if kube-scheduler wants to evict pods for it: `preempt` adds those that hold the GPU it needs.
5. **Reserved.** kube-scheduler asks to bind it: `reserve` fixes the GPUs and says which annotations to write.
6. **Bound.** The API server took the binding (`confirm`), or shows the pod bound (`observe`), also by others.
7. **Waiting too long.** After the patience, GPUs are kept for a pod that was refused again and again: `take_turns`.
8. **Ended** (`observe`) or **deleted** (`forget`). What it held is free. Pods that fit now are woken: `due`.

Every step is data in, data out: no clock, no I/O, no HTTP. The extender calls this with what it decodes and what its
watches show. A simulator calls the same.

What happens next to a refused pod: `core/placement/fit.py` gives the reason of each node, which the ledger asks for
(`refusals` in `core/ledger/questions.py`). kube-scheduler writes the reasons into the pod's condition. The watch shows
the condition, and `extender/events.py` writes an event.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import objects
from gpushare.core.facts import request as requests
from gpushare.core.facts.model import Needs, NodeFacts, Places, PodFacts, Refusal, Request, Unit
from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring import adjusted, node_score
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.scoring.settings import NEUTRAL, Settings
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.order import offer as offers
from gpushare.core.order.offer import Offer
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.placement.fit import NEEDS_POLICY, OTHER_NODE, RESERVED
from gpushare.core.scheduling import preempt, ranking
from gpushare.core.scheduling.patience import Changes, Patience
from gpushare.core.scheduling.pending import PendingPods
from gpushare.core.scheduling.reach import ANYWHERE, Reach
from gpushare.core.scheduling.wakeups import WakeUps

MOST_NEEDS = 1_000  # kept once; people write few different ones
Pick = Callable[[Request, PodFacts, Offer, Budget], list[str]]
Offered = Offer | Sequence[str]


class Answer(NamedTuple):
    """Which of the offered nodes fit; if none does, why, by node. `resolvable`: the same for the nominated node."""

    fits: list[str]
    refusals: Mapping[str, Refusal] = {}
    resolvable: Mapping[str, Refusal] = {}
    invalid: Refusal | None = None  # what it asks makes no sense: refused by every node


class Reservation(NamedTuple):
    """What a binding shall write."""

    pod: PodFacts
    request: Request
    node: NodeFacts
    places: Places
    annotations: dict[str, str]


class Life:
    """All pods together. `policy` is for pods that name none; with a `patience` of 0 seconds no GPUs are ever kept."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        policy: str,
        patience: float = 0.0,
        reach: Reach = ANYWHERE,
        node_points: NodePoints | None = None,
    ) -> None:
        self.ledger, self.policy, self.reach = ledger, policy, reach
        self.node_points = node_points
        self.pending = PendingPods()
        self.wakeups = WakeUps(reach.open_to)
        self.patience = Patience(patience)
        self.settings = NEUTRAL
        self._needs: dict[Needs, Needs] = {}  # equal needs of many pods, kept once: they may be long

    def apply(self, settings: Settings) -> None:
        """From now on an admin wants it so."""
        self.settings = settings
        self.ledger.apply(settings)
        self.ledger.respect_reservations(settings.reservation)

    def facts(self, pod: objects.Pod, unit: Unit | None) -> PodFacts:
        """What is known about a pod, with what counts for the points of nodes, if any do."""
        facts = requests.facts(pod, unit)
        if not isinstance(facts.request, Request) or facts.node:
            return facts
        score = POLICIES[self._policy(facts.request)].score
        if score is None or not adjusted.weights(score, self.settings)[0]:
            return facts
        if len(self._needs) >= MOST_NEEDS:
            self._needs.clear()
        needs = node_score.needs(pod)
        return msgspec.structs.replace(facts, needs=self._needs.setdefault(needs, needs))

    def asked(self, pod: objects.Pod, unit: Unit | None) -> PodFacts:
        """The same for a pod that a scheduler sends. It is not read once more if the API server has shown this version
        of it, unless points of nodes may count: what counts for those may have changed since."""
        shown = self.pending.shown_in(pod.metadata.uid, pod.metadata.resource_version)
        if shown is None or (isinstance(shown.request, Request) and POLICIES[self._policy(shown.request)].score):
            return self.facts(pod, unit)
        return shown

    # 1. Asked: which nodes fit?

    def choose(self, pod: PodFacts, offered: Offered, now: float) -> Answer:
        """The best node alone: the scheduler need not ask for scores, nor compute any itself."""
        return self._ask(pod, offers.of(offered), now, self._best)

    def filter(self, pod: PodFacts, offered: Offered, now: float) -> Answer:
        """All nodes that fit: others have a say in which is taken."""
        return self._ask(pod, offers.of(offered), now, self._all)

    def _ask(self, pod: PodFacts, offer: Offer, now: float, pick: Pick) -> Answer:
        if pod.request is None:
            return self._pass(pod, list(offer.names))
        if isinstance(pod.request, Refusal):
            return Answer([], invalid=pod.request)
        self.ledger.release(pod.uid)
        budget = Budget(CALL_LOOKS)
        fits = pick(pod.request, pod, offer, budget)
        if not fits:
            return self._refuse(pod, pod.request, offer.names, budget)
        self._remember(pod)
        if len(fits) == 1:
            self._assume(pod, pod.request, fits[0], now)  # the scheduler does not ask for the score of a single node
        return Answer(fits)

    def _pass(self, pod: PodFacts, offered: list[str]) -> Answer:
        """A pod that asks us for nothing."""
        refusals = self._turned_away(pod, offered)
        fits = [node for node in offered if node not in refusals] if refusals else offered
        return Answer(fits, {} if fits else refusals)

    def _turned_away(self, pod: PodFacts, nodes: Collection[str]) -> dict[str, Refusal]:
        """Nodes that do not take a pod that asks us for nothing. What asks NVIDIA's plugin by a name that we sell too
        would see no GPU on the nodes where we do."""
        refusals: dict[str, Refusal] = {}
        if pod.asks_nvidia:
            refusals |= {node: NEEDS_POLICY for node in nodes if self._sells_whole(node)}
        if self.settings.reservation:
            reserved = self.reach.reserved()
            refusals |= {node: RESERVED for node in nodes if node in reserved}
        if pod.only_node:
            refusals |= {node: OTHER_NODE for node in nodes if node != pod.only_node}
        return refusals

    def _sells_whole(self, node: str) -> bool:
        facts = self.ledger.facts(node)
        return facts is not None and facts.nvidia_whole

    def _all(self, request: Request, pod: PodFacts, offer: Offer, budget: Budget) -> list[str]:
        return self.ledger.fitting(request, pod, offer.names, budget)

    def _best(self, request: Request, pod: PodFacts, offer: Offer, budget: Budget) -> list[str]:
        best = ranking.first(self.ledger, request, pod, offer, self._policy(request), budget, self.node_points)
        # A long search may give up in the order of a policy although there is room: then all that fit are answered.
        return [best] if best is not None else self._all(request, pod, offer, budget)

    # 2. No node fits: refused, remembered, woken later

    def _refuse(self, pod: PodFacts, request: Request, offered: Sequence[str], budget: Budget) -> Answer:
        refusals = self.ledger.refusals(request, pod, offered, budget)
        if _can_be_remembered(pod):
            self.pending.asked_about(pod)
            self.wakeups.refuse(pod, offered)
        # The scheduler tries preemption on nodes that are called resolvable, always without result. Only the node that
        # the pod is nominated to must be called so, or the scheduler drops the nomination.
        nominated = refusals.pop(pod.nominated, None)
        return Answer([], refusals, {pod.nominated: nominated} if nominated is not None else {})

    # 3. Some nodes fit: the best is assumed

    def prioritize(self, pod: PodFacts, offered: Offered, now: float) -> list[tuple[str, int]]:
        """After `filter`: scores of the best nodes, the best first. It is assumed."""
        if pod.request is None:
            return self._without_gpus(offers.of(offered).names) if not pod.asks_nvidia else []
        if not isinstance(pod.request, Request):
            return []
        self.ledger.release(pod.uid)
        policy = self._policy(pod.request)
        scores = ranking.best(self.ledger, pod.request, pod, offered, policy, Budget(CALL_LOOKS), self.node_points)
        if scores:
            self._remember(pod)
            self._assume(pod, pod.request, scores[0][0], now)
        return scores

    def _without_gpus(self, offered: Sequence[str]) -> list[tuple[str, int]]:
        """Scores for a pod that asks for no GPU, if such pods prefer nodes that have none: only those are named."""
        if not self.settings.prefers_other_nodes:
            return []
        return [(node, ranking.BEST) for node in offered if self.ledger.facts(node) is None]

    def _assume(self, pod: PodFacts, request: Request, node: str, now: float) -> None:
        if _can_be_remembered(pod):
            places = self.ledger.assume(pod, node, self._policy(request), now)
            if not isinstance(places, Refusal):
                self.wakeups.gone(pod.uid)

    def _remember(self, pod: PodFacts) -> None:
        if _can_be_remembered(pod):
            self.pending.asked_about(pod)

    # 4. kube-scheduler wants to evict pods for it

    def preempt(self, pod: PodFacts, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """`victims`: by node, the uids that kube-scheduler chose by totals. Returns by node the uids to add, so that a
        GPU comes free; nodes where eviction does not help are left out."""
        if pod.request is None:
            turned_away = self._turned_away(pod, victims)
            return {node: [] for node in victims if node not in turned_away}
        added, budget = {}, Budget(CALL_LOOKS)
        for node, chosen in victims.items():
            state = self.ledger.node(node) if pod.only_node in ("", node) else None
            more = preempt.victims(state, pod, chosen, budget) if state is not None else None
            if more is not None:
                added[node] = more
        return added

    # 5. kube-scheduler asks to bind it

    def reserve(
        self, pod: PodFacts, request: Request, node: str, *, extender: str, nanoseconds: int
    ) -> Reservation | Refusal:
        """The GPUs of the pod, fixed until `confirm` or `undo`. `extender`: who binds it."""
        places = self.ledger.reserve(pod, node, self._policy(request))
        if isinstance(places, Refusal):
            return places
        facts = self.ledger.facts(node)
        assert facts is not None  # a reservation was just made there
        try:
            annotations = pod_gpus.write(request, facts, places, extender=extender, nanoseconds=nanoseconds)
        except BaseException:
            self.undo(pod.uid)
            raise
        return Reservation(pod, request, facts, places, annotations)

    def undo(self, uid: str) -> None:
        """What is still only reserved was surely not written."""
        self.ledger.undo(uid)

    # 6. Bound

    def confirm(self, reservation: Reservation) -> None:
        """The API server took the binding."""
        pod, node = reservation.pod, reservation.node
        self.ledger.confirm(requests.bound(pod, node.name, reservation.annotations))
        self.pending.forget(pod.uid)

    def observe(self, pod: PodFacts, now: float, version: str = "") -> bool:
        """The API server shows a pod, in that version if it is known. Returns whether it has begun to wait, or waits
        for another reason."""
        self.ledger.observe(pod, now)
        if pod.node or pod.finished or pod.terminating:
            self.waits_no_longer(pod.uid)
            return False
        return self._observe_waiting(pod, version)

    def _observe_waiting(self, pod: PodFacts, version: str) -> bool:
        before = self.pending.shown.get(pod.uid)
        self.pending.show(pod, version)
        if before is not None and before.unschedulable == pod.unschedulable:
            return False
        decided = self.ledger.holding(pod.uid) is not None or pod.uid in self.wakeups
        if pod.unschedulable and not decided:
            self.wakeups.refuse(pod)  # refused by an extender before us: we have to wake it
        return True

    def unbind(self, pod: PodFacts, now: float) -> bool:
        """The cluster was restored from a copy from before the binding: the pod waits once more."""
        self.ledger.unbind(pod.uid)
        self.pending.forget(pod.uid)
        return self.observe(pod, now)

    def relisted(self, listed: Set[str], unbound: Set[str]) -> list[PodFacts]:
        """A complete list of pods was read: forget those that are not in it, and bindings of pods it shows `unbound`.
        Returns pods that may be newer than the list, or restored to an older state: each must be asked for."""
        unsure = self.ledger.relisted(listed, unbound)
        for uid in self.pending.shown.keys() - listed:
            self.ledger.release(uid)
            self.waits_no_longer(uid)
        # A pod that only a scheduler has shown may be newer than the list.
        return unsure + [pod for pod in self.wakeups.refused() if pod.uid not in listed]

    # 7. It waits too long: GPUs are kept for it

    def take_turns(self, now: float) -> Changes:
        """For whom GPUs are kept from now on, and for whom no longer. `now`: seconds since 1970."""
        # Not the nodes that a scheduler offered: by totals it leaves out those where something must come free first.
        return self.patience.update(self.ledger, self.pending.shown.values(), self.reach, now)

    # 8. It ends: what it held is free, and others are woken

    def forget(self, uid: str) -> None:
        """The pod is deleted."""
        self.ledger.forget(uid)
        self.waits_no_longer(uid)

    def waits_no_longer(self, uid: str) -> None:
        self.pending.forget(uid)
        self.wakeups.gone(uid)

    def due(self, now: float) -> list[PodFacts]:
        """The pods to wake: they fit now, and kube-scheduler does not know that it should ask again."""
        return self.wakeups.due(self.ledger, now)

    def _policy(self, request: Request) -> str:
        return request.policy or self.policy


def _can_be_remembered(pod: PodFacts) -> bool:
    """A pod that exists. A question about a pod without uid is answered, and changes nothing."""
    return bool(pod.uid and pod.name and pod.namespace) and not pod.node and not pod.terminating
