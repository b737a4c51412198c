"""Events: where a pod went, and why another waits.

A Warning is due when kube-scheduler's condition on a pod says that it cannot be scheduled, not when we are asked:
kube-scheduler compares totals first and often refuses without asking. The texts come from `core.explain.event_texts`.
They are made one at a time between the calls of schedulers, for each namespace in turn, because each needs a look at
every node. Only the nodes that a pod may use are looked at: room on others does not help it. A pod that no scheduler
has tried yet is not looked at while schedulers ask: most of them are bound by then.

What happens next to a pod that waits: when memory comes free that it could use, `core/scheduling/wakeups.py` says so.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from gpushare.core.explain import event_texts, views
from gpushare.core.facts.model import NodeFacts, Pin, Places, PodFacts, Request
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.turns import Turns
from gpushare.extender.slices import in_slices
from gpushare.kube.events import Recorder

PAUSE = 0.1  # seconds between two surveys of all nodes
MIXED = (
    "The GPU memory unit of this node is {unit}, of most others {other}. A pod that names no unit may go to either. "
    "Set annotation gpushare.io/memory-unit on pods, or --memory-unit of the extender."
)
SECOND = (
    "Bound by another gpushare extender ({identity}). "
    "Two extenders count separately: both may give out the same memory."
)


Allowed = Callable[[PodFacts], Collection[str] | None]


class Announcer:
    def __init__(self, recorder: Recorder, ledger: Ledger, busy: Callable[[], bool] = lambda: False) -> None:
        """`busy`: whether schedulers ask at the moment."""
        self._recorder, self._ledger, self._busy = recorder, ledger, busy
        self._due: Turns[str, PodFacts] = Turns()
        self._untried: dict[str, PodFacts] = {}  # due when schedulers do not ask
        self._wanted = asyncio.Event()
        self._warned_of_unit: set[str] = set()

    def assigned(self, pod: PodFacts, request: Request, facts: NodeFacts, places: Places) -> None:
        state = self._ledger.node(facts.name)
        room = state.room if state is not None else None
        left: Sequence[int] = room.free if room is not None else ()
        if room is None or room.facts is not facts:  # a node may go, or lose GPUs, while the binding is written
            free = {gpu.key: units for gpu, units in zip(room.facts.gpus, room.free, strict=True)} if room else {}
            left = [free.get(gpu.key, 0) for gpu in facts.gpus]
        self._record(pod, "Normal", event_texts.ASSIGNED, event_texts.assigned(facts, request, places, left))

    def kept(self, kept: Kept, waited: float) -> None:
        """A pod has waited so long that GPUs are kept for it."""
        view = views.kept(self._ledger, kept.pod)
        if view is not None:
            self._record(kept.pod, "Normal", event_texts.GPU_KEPT, event_texts.turn(view, waited))

    def waits(self, pod: PodFacts) -> None:
        """A pod has appeared, or was refused: perhaps there is something to say."""
        if pod.unschedulable or not isinstance(pod.request, Request):
            self._untried.pop(pod.uid, None)
            self._due.put(pod.namespace, pod.uid, pod)
        else:
            self._due.drop(pod.uid)
            self._untried[pod.uid] = pod
        self._wanted.set()

    def gone(self, uid: str) -> None:
        self._due.drop(uid)
        self._untried.pop(uid, None)

    def second_extender(self, pod: PodFacts, identity: str) -> None:
        self._record(pod, "Warning", event_texts.SECOND_EXTENDER, SECOND.format(identity=identity[:16]))

    def bound(self, pod: PodFacts) -> None:
        """A pod is on a node. If no extender bound it, the node gets an event. On nodes of Aliyun's plugin it is ours,
        because no process of gpushare is there; on others the node's own audit does that."""
        facts = self._ledger.facts(pod.node) if not (pod.annotations or pod.finished) else None
        if facts is not None and facts.pin is Pin.ALIYUN:
            self._recorder.record(
                kind="Node", namespace="", name=pod.node, uid=pod.node, type="Warning",
                reason=event_texts.BOUND_BY_HAND, message=event_texts.bound_by_hand(pod, event_texts.COUNTS_ON_ALL),
            )  # fmt: skip

    def mixed_units(self, nodes: Iterable[NodeFacts]) -> None:
        """One Warning for each node whose unit is not that of most nodes."""
        nodes = list(nodes)
        gib = [facts for facts in nodes if facts.unit == "GiB"]
        if not gib or len(gib) == len(nodes):
            return
        mib = [facts for facts in nodes if facts.unit == "MiB"]
        for facts in gib if len(gib) <= len(mib) else mib:
            if facts.name not in self._warned_of_unit:
                self._warned_of_unit.add(facts.name)
                other = "MiB" if facts.unit == "GiB" else "GiB"
                text = MIXED.format(unit=facts.unit, other=other)
                self._recorder.record(
                    kind="Node", namespace="", name=facts.name, uid=facts.name,
                    type="Warning", reason=event_texts.MIXED_UNITS, message=text,
                )  # fmt: skip

    async def run(self, allowed: Allowed) -> None:
        """For ever. `allowed`: the nodes that a pod may use, GPUs aside; None: all."""
        while True:
            await self._wanted.wait()
            while self._due or self._untried:
                self._take_untried()
                if not self._due:
                    await asyncio.sleep(PAUSE)
                    continue
                _, pod = self._due.take()
                among = allowed(pod)
                if not self._is_stuck(pod, among):
                    await asyncio.sleep(0)
                    continue
                event = await in_slices(event_texts.warning_steps(self._ledger, pod, among, CALL_LOOKS))
                # Before kube-scheduler has tried the pod, only that it can never run is worth an event.
                if event is not None and (pod.unschedulable or event[0] != event_texts.NO_GPU_FITS):
                    self._record(pod, "Warning", *event)
                await asyncio.sleep(PAUSE)
            self._wanted.clear()

    def _take_untried(self) -> None:
        if self._untried and not self._busy():
            for uid, pod in self._untried.items():
                self._due.put(pod.namespace, uid, pod)
            self._untried.clear()

    def _is_stuck(self, pod: PodFacts, among: Collection[str] | None) -> bool:
        """Whether it is worth looking at every node: most new pods fit somewhere, and that is quickly seen."""
        if pod.unschedulable or not isinstance(pod.request, Request):
            return True
        names = list(self._ledger.node_names() if among is None else among)
        return not self._ledger.fitting(pod.request, pod, names, Budget(CALL_LOOKS))

    def _record(self, pod: PodFacts, kind: str, reason: str, message: str) -> None:
        self._recorder.record(
            kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, type=kind, reason=reason, message=message
        )
