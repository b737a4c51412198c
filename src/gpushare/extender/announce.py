"""Events: where a pod went, and why another waits.

A Warning is due when kube-scheduler's condition on a pod says it cannot be scheduled, not when we are asked: the
scheduler compares totals first and often refuses without asking. Texts come from `core.sentences`; they are made
when there is time to send them, because looking at every node for every waiting pod would be in the way.
"""

import asyncio
from collections.abc import Iterable

from gpushare.core import patience, sentences
from gpushare.core.book import Kept
from gpushare.core.ledger import Ledger
from gpushare.core.model import NodeFacts, Places, PodFacts, Request
from gpushare.kube.events import Recorder

PAUSE = 0.1  # seconds between two surveys of all nodes
MIXED = (
    "This node counts GPU memory in {unit}, most others in {other}; a pod that does not say its unit may go to either. "
    "Say it: annotation gpushare.io/memory-unit, or --memory-unit of the extender."
)
SECOND = "Bound by another gpushare extender ({identity}): two of them count separately and give memory out twice."


class Announcer:
    def __init__(self, recorder: Recorder, ledger: Ledger) -> None:
        self._recorder, self._ledger = recorder, ledger
        self._due: dict[str, PodFacts] = {}
        self._wanted = asyncio.Event()
        self._told_units: set[str] = set()

    def assigned(self, pod: PodFacts, claim: Request, facts: NodeFacts, places: Places) -> None:
        state = self._ledger.nodes.get(facts.name)
        room = state.room if state is not None else None  # a node may go while the binding is written
        left = list(room.free) if room is not None else [0] * len(facts.gpus)
        self._say(pod, "Normal", sentences.ASSIGNED, sentences.assigned(facts, claim, places, left))

    def kept(self, kept: Kept, waited: float) -> None:
        """A pod has waited so long that GPUs are kept for it."""
        view = patience.view(self._ledger, kept.pod)
        if view is not None:
            self._say(kept.pod, "Normal", sentences.GPU_KEPT, sentences.turn(view, waited))

    def waits(self, pod: PodFacts) -> None:
        """A pod was refused, or has just appeared: it may deserve a word."""
        self._due[pod.uid] = pod
        self._wanted.set()

    def gone(self, uid: str) -> None:
        self._due.pop(uid, None)

    def second_extender(self, pod: PodFacts, identity: str) -> None:
        self._say(pod, "Warning", sentences.SECOND_EXTENDER, SECOND.format(identity=identity[:16]))

    def mixed_units(self, nodes: Iterable[NodeFacts]) -> None:
        """One Warning for each node that counts otherwise than most."""
        nodes = list(nodes)
        gib = [facts for facts in nodes if facts.unit == "GiB"]
        if not gib or len(gib) == len(nodes):
            return
        mib = [facts for facts in nodes if facts.unit == "MiB"]
        for facts in gib if len(gib) <= len(mib) else mib:
            if facts.name not in self._told_units:
                self._told_units.add(facts.name)
                other = "MiB" if facts.unit == "GiB" else "GiB"
                text = MIXED.format(unit=facts.unit, other=other)
                self._recorder.record(
                    kind="Node", namespace="", name=facts.name, uid=facts.name,
                    type="Warning", reason=sentences.MIXED_UNITS, message=text,
                )  # fmt: skip

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            while self._due:
                uid, pod = next(iter(self._due.items()))
                del self._due[uid]
                surveyed = self._is_stuck(pod)
                said = sentences.waiting(self._ledger, pod) if surveyed else None
                # Before the scheduler has said anything, only what can never run is worth a word.
                if said is not None and (pod.unschedulable or said[0] != sentences.NO_GPU_FITS):
                    self._say(pod, "Warning", *said)
                await asyncio.sleep(PAUSE if surveyed else 0)
            self._wanted.clear()

    def _is_stuck(self, pod: PodFacts) -> bool:
        """Whether it is worth looking at every node: most new pods fit somewhere, and that is quickly seen."""
        if pod.unschedulable or not isinstance(pod.claim, Request):
            return True
        return not self._ledger.fitting(pod.claim, pod, list(self._ledger.nodes))

    def _say(self, pod: PodFacts, kind: str, reason: str, message: str) -> None:
        self._recorder.record(
            kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, type=kind, reason=reason, message=message
        )
