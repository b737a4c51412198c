"""What the API server shows, written into the ledger: nodes that come, change and go, and pods.

A pod that is shown bound is charged as its annotations say, also if somebody else bound it.

What happens next: the node gets a new `Room` (`core/placement/room.py`). When kube-scheduler asks, `questions` compares
requests with rooms. Nodes where memory came free are in `take_grown`, which `core/scheduling/wakeups.py` reads.
"""

from collections.abc import Set

import msgspec

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts.model import Charges, NodeFacts, PodFacts, Request
from gpushare.core.ledger.holding import Holding, State, assume_seconds, places_of
from gpushare.core.ledger.node_record import NodeRecord
from gpushare.core.ledger.questions import Questions
from gpushare.core.placement.fit import RESERVED

REFUSED_BY_KUBELET = "UnexpectedAdmissionError"


class Observed(Questions):
    # Nodes

    def set_node(self, facts: NodeFacts) -> None:
        """A node appeared or changed. All that is held there is read again: indices and sizes may have shifted."""
        record, facts = self._record(facts.name), self._with_reservation(facts)
        if record.facts != facts:
            self._see_sizes(facts)
            self._reread(record, facts)

    def remove_node(self, name: str) -> None:
        """A node is gone, or shares no GPU any more. Its pods are remembered until they are gone themselves."""
        record = self._nodes.get(name)
        if record is not None and record.facts is not None:
            self._reread(record, None)
            self._drop_if_empty(record)

    def respect_reservations(self, respected: bool) -> None:
        """Whether nodes that an admin reserved take no new pods. What is there stays."""
        if respected == self._respects_reservations:
            return
        self._respects_reservations = respected
        for record in list(self._nodes.values()):
            if record.facts is not None and record.facts.reserved:
                self.set_node(record.facts)

    def _with_reservation(self, facts: NodeFacts) -> NodeFacts:
        """A reserved node is blocked, if that counts: then it is in no table of nodes that fit."""
        if facts.reserved and self._respects_reservations and facts.blocked is None:
            return msgspec.structs.replace(facts, blocked=RESERVED)
        if facts.blocked == RESERVED and not self._respects_reservations:
            return msgspec.structs.replace(facts, blocked=None)
        return facts

    def _reread(self, record: NodeRecord, facts: NodeFacts | None) -> None:
        before = record.facts
        for holding in record.begin_anew(facts):
            holding.charges = self._charges(holding, facts) if facts else None
            holding.unlocated = 0 if holding.charges is not None else holding.on_every_gpu(facts)
            if holding.charges is None and holding.state is State.ASSUMED:
                # Its GPU is gone, and nothing was written yet.
                del self._holdings[holding.pod.uid], self._assumed[holding.pod.uid]
                self.supplies.end(holding.pod.uid)
            else:
                self._put(record, holding)
        self._refresh(record, changed=before != facts)

    def _charges(self, holding: Holding, facts: NodeFacts) -> Charges | None:
        if holding.state is State.BOUND:
            return pod_gpus.read(holding.pod, facts)
        request, then, places = holding.pod.request, holding.decided_on, places_of(holding.keys, facts)
        if not isinstance(request, Request) or then is None or places is None:
            return None
        if holding.state is State.ASSUMED and (then.unit, then.slots) != (facts.unit, facts.slots):
            return None  # it was found to fit in another unit, or in other parts
        if holding.state is State.RESERVED and any(share.kind.slots for share in request.shares):
            # What an MPS share holds is what its binding writes, whatever has become of the GPU since.
            written = holding.as_bound()
            return None if written is None else pod_gpus.read(written, facts)
        return pod_gpus.charges(request.shares, facts, places, holding.unit_on(facts))

    # Pods, as the API server shows them

    def observe(self, pod: PodFacts, now: float) -> None:
        """A pod appeared or changed."""
        if pod.request is None or pod.finished:
            if pod.failed_reason == REFUSED_BY_KUBELET:
                self._observe_refused(pod, now)
            self.forget(pod.uid)
        elif pod.node:
            self._observe_bound(pod, now)
        else:
            self._observe_waiting(pod)

    def forget(self, uid: str) -> None:
        """A pod is gone, or its containers have ended."""
        self._end_nomination(uid)
        self.keep_no_longer(uid)
        self._remove(uid)
        self.use_no_longer(uid)

    def relisted(self, kept: Set[str], unbound: Set[str] = frozenset()) -> list[PodFacts]:
        """A complete list was read. Forget the pods that are not in it, and the bindings of pods that it shows unbound.
        Returns pods that we decided about and that nothing has shown bound yet. They may be newer than the list, or
        gone, or restored to an older state: the API server must be asked for each."""
        unsure = []
        for uid in self._holdings.keys() - kept:
            holding = self._holdings[uid]
            if holding.seen:
                self.forget(uid)
            else:
                unsure.append(holding.pod)
        for uid in self._holdings.keys() & kept & unbound:
            holding = self._holdings[uid]
            if holding.seen:
                self.unbind(uid)
            elif holding.state is State.BOUND:
                unsure.append(holding.pod)
        for uid in self.supplies.pods() - kept - self._holdings.keys():
            self.use_no_longer(uid)
        for uid in self._nominations.keys() - kept:
            self._end_nomination(uid)
        for uid in self._kept.keys() - kept:
            self.keep_no_longer(uid)
        return unsure

    def unbind(self, uid: str) -> None:
        """A binding that was made is not there any more: the cluster was restored from a copy from before it."""
        if self.bound(uid) is not None:
            self._remove(uid)

    def _observe_refused(self, pod: PodFacts, now: float) -> None:
        holding = self._holdings.get(pod.uid)
        if holding is not None and holding.node == pod.node and isinstance(pod.request, Request):
            self._nodes[pod.node].cool_down(pod.request, now)
            self._timed.add(pod.node)

    def _observe_waiting(self, pod: PodFacts) -> None:
        holding = self._holdings.get(pod.uid)
        if holding is not None and holding.state is State.BOUND:
            return  # an event that shows a bound pod unbound is old, unless a complete list confirms it: `relisted`
        if holding is not None and holding.state is State.ASSUMED:
            if pod.terminating or pod.request != holding.pod.request:
                self._remove(pod.uid)
            else:
                holding.pod = pod
                holding.until = holding.since + assume_seconds(pod, holding.node)
        kept = self._kept.get(pod.uid)
        if kept is not None and (pod.terminating or pod.request != kept.pod.request):
            self.keep_no_longer(pod.uid)
        if pod.nominated and not pod.terminating and isinstance(pod.request, Request):
            self._nominate(pod)
        else:
            self._end_nomination(pod.uid)

    def _observe_bound(self, pod: PodFacts, now: float) -> None:
        self._end_nomination(pod.uid)
        self.keep_no_longer(pod.uid)
        record = self._record(pod.node)
        old = self._holdings.get(pod.uid)
        if old is not None and old.state is State.BOUND and old.node == pod.node and old.pod == pod:
            old.seen = True
            return
        holding = bound_holding(pod, record)
        holding.seen, holding.since = True, old.since if old is not None else 0.0
        others_may_go = record.ends_refusals(old.pod if old is not None else None, pod)
        if old is not None and not others_may_go and self._shows(record, old, holding):
            return
        if old is not None:
            self._take(self._nodes[old.node], old)
            if old.node == pod.node and old.state is State.BOUND and record.keep_old_place(old, holding, now):
                self._timed.add(record.name)
        self._put(record, holding)
        if old is not None and old.node != pod.node:
            self._refresh(self._nodes[old.node], changed=True)
            self._drop_if_empty(self._nodes[old.node])
        self._refresh(record, changed=others_may_go)


def bound_holding(pod: PodFacts, record: NodeRecord) -> Holding:
    charges = pod_gpus.read(pod, record.facts) if record.facts else None
    return Holding(pod, record.name, State.BOUND, charges, record.facts)
