"""A model of everything around the ledger: an API server of plain dicts, watches that lag behind it, and what the
ledger should then say, worked out again from nothing each time.

`Api` is the truth. `Mirror` is told what the ledger is told and keeps no sums: it can be slow and plain, because it is
only there to be compared with.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpushare.core.annotations import node_gpus, pod_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.kinds import NVIDIA_WHOLE
from gpushare.core.facts.model import Charges, Kind, NodeFacts, Pin, Places, PodFacts, Refusal, Request, Role, Share
from gpushare.core.ledger import cool_down
from gpushare.core.ledger.holding import ASSUME_SECONDS, SLOW_ASSUME_SECONDS
from gpushare.core.ledger.node_record import MOVE_SECONDS
from gpushare.core.placement.room import Room
from tests.core import oracle
from tests.support.builders import bound

REFUSED = "UnexpectedAdmissionError"
ALL_OF_IT = 1 << 50


class Event(NamedTuple):
    gone: bool
    pod: objects.Pod


class Api:
    """The API server, with the events that our watches have not brought yet."""

    def __init__(self) -> None:
        self.pods: dict[str, objects.Pod] = {}
        self.unbound: dict[
            str, objects.Pod
        ] = {}  # the last version without a node: what schedulers may still believe in
        self.nodes: dict[str, objects.Node] = {}
        self.pod_events: list[Event] = []
        self.node_events: list[str] = []
        self.made = 0

    def put(self, pod: objects.Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        if not pod.spec.node_name:
            self.unbound[pod.metadata.uid] = pod
        self.pod_events.append(Event(False, pod))

    def delete(self, uid: str) -> None:
        self.pod_events.append(Event(True, self.pods.pop(uid)))
        del self.unbound[uid]

    def bind(self, uid: str, node: str, notes: Mapping[str, str]) -> bool:
        """One update sets the node and merges the annotations, or nothing happens."""
        pod = self.pods.get(uid)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
            return False
        self.put(annotated(replace(pod, spec=replace(pod.spec, node_name=node)), notes))
        return True

    def put_node(self, node: objects.Node) -> None:
        self.nodes[node.metadata.name] = node
        self.node_events.append(node.metadata.name)

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self.node_events.append(name)


def added(one: "Amounts", other: "Amounts", sign: int = 1) -> "Amounts":
    return one[0] + sign * other[0], one[1] + sign * other[1]


def by_gpu(charges: Charges) -> dict[int, "Amounts"]:
    return {charge.gpu: (charge.units, charge.slots) for charge in charges}


def annotated(pod: objects.Pod, notes: Mapping[str, str | None]) -> objects.Pod:
    """The pod with these annotations; None takes one away."""
    merged = {**(pod.metadata.annotations or {}), **notes}
    kept = {key: value for key, value in merged.items() if value is not None}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))


def facts_of(pod: objects.Pod) -> PodFacts:
    return request.facts(pod, None)


def node_facts(node: objects.Node | None) -> NodeFacts | None:
    return None if node is None else node_gpus.read(node, frozenset())


class Decision:
    """A hold, or a reservation whose binding may be under way."""

    def __init__(
        self, pod: PodFacts, node: NodeFacts, keys: tuple[tuple[str, ...], ...], since: float, held: bool
    ) -> None:
        self.pod, self.node, self.keys, self.since, self.held = pod, node.name, keys, since, held
        self.facts, self.unit, self.slots = node, node.unit, node.slots

    def ends(self) -> float:
        slow = self.pod.slow_volumes or self.pod.nominated == self.node
        return self.since + (SLOW_ASSUME_SECONDS if slow else ASSUME_SECONDS)


class CoolDown:
    def __init__(self, until: float, length: float) -> None:
        self.until, self.length, self.active = until, length, True


Amounts = tuple[int, int]  # units and slots


class OldPlace(NamedTuple):
    node: str
    amounts: dict[str, Amounts]
    until: float


class Mirror:
    """What the ledger was told, unsummed."""

    def __init__(self) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self.bound: dict[str, PodFacts] = {}
        self.seen: set[str] = set()
        self.decided: dict[str, Decision] = {}
        self.old_places: dict[str, OldPlace] = {}
        self.nominated: dict[str, PodFacts] = {}
        self.cool_downs: dict[tuple[str, object], CoolDown] = {}

    # What it is told

    def set_node(self, name: str, facts: NodeFacts | None) -> None:
        if signature(self.facts.get(name)) != signature(facts):
            self.cool_downs = {key: one for key, one in self.cool_downs.items() if key[0] != name}
        self.facts.pop(name, None)
        if facts is not None:
            self.facts[name] = facts
        for uid, decision in list(self.decided.items()):
            if decision.node == name and decision.held and self._decided_charges(decision) is None:
                del self.decided[uid]

    def observe(self, pod: PodFacts, now: float) -> None:
        if pod.finished:
            if pod.uid in self.holders(pod.node) and pod.failed_reason == REFUSED and isinstance(pod.request, Request):
                self._refused(pod.node, shape(pod.request), now)
            self.forget(pod.uid)
        elif pod.node:
            self._bound(pod, now)
            self.seen.add(pod.uid)
        elif pod.uid not in self.bound:
            self._unbound(pod)

    def forget(self, uid: str) -> None:
        for known in (self.bound, self.decided, self.old_places, self.nominated):
            known.pop(uid, None)
        self.seen.discard(uid)

    def confirm(self, pod: PodFacts) -> None:
        if pod.uid in self.decided and not self.decided[pod.uid].held:
            del self.decided[pod.uid]
            self.nominated.pop(pod.uid, None)
            self.bound[pod.uid] = pod

    def decide(self, pod: PodFacts, node: str, places: Places, now: float, *, held: bool) -> None:
        gpus = self.facts[node].gpus
        keys = tuple(tuple(gpus[gpu].key for gpu in chosen) for chosen in places)
        self.decided[pod.uid] = Decision(pod, self.facts[node], keys, now, held)

    def release(self, uid: str) -> None:
        if uid in self.decided and self.decided[uid].held:
            del self.decided[uid]

    def undo(self, uid: str) -> None:
        if uid in self.decided and not self.decided[uid].held:
            del self.decided[uid]

    def expire(self, now: float) -> None:
        self.decided = {uid: d for uid, d in self.decided.items() if not d.held or d.ends() > now}
        self.old_places = {uid: old_place for uid, old_place in self.old_places.items() if old_place.until > now}
        for one in self.cool_downs.values():
            one.active = one.active and one.until > now
        self.cool_downs = {
            key: one for key, one in self.cool_downs.items() if one.until + cool_down.RECALL_SECONDS > now
        }

    def _bound(self, pod: PodFacts, now: float) -> None:
        self.nominated.pop(pod.uid, None)
        before = self.bound.get(pod.uid)
        decided = self.decided.pop(pod.uid, None)
        ran = before is not None and before.running
        if pod.running and not ran and isinstance(pod.request, Request):
            self.cool_downs.pop((pod.node, shape(pod.request)), None)
        if before is not None and decided is None:
            self._moved(before, pod, now)
        self.bound[pod.uid] = pod

    def _moved(self, before: PodFacts, after: PodFacts, now: float) -> None:
        """For a while a pod counts on the GPUs it had as well as on those it has."""
        had, has = self._bound_amounts(before), self._bound_amounts(after)
        if had is None or has is None or had == has:
            return
        old_place = self.old_places.pop(after.uid, None)
        for key, amount in (old_place.amounts if old_place else {}).items():
            had[key] = added(had.get(key, (0, 0)), amount)
        less = {key: added(amount, has.get(key, (0, 0)), -1) for key, amount in had.items()}
        left = {key: (max(units, 0), max(slots, 0)) for key, (units, slots) in less.items() if units > 0 or slots > 0}
        if left:
            self.old_places[after.uid] = OldPlace(after.node, left, now + MOVE_SECONDS)

    def _unbound(self, pod: PodFacts) -> None:
        decision = self.decided.get(pod.uid)
        if decision is not None and decision.held:
            if pod.terminating or pod.request != decision.pod.request:
                del self.decided[pod.uid]
            else:
                decision.pod = pod
        if pod.nominated and not pod.terminating and isinstance(pod.request, Request):
            self.nominated[pod.uid] = pod
        else:
            self.nominated.pop(pod.uid, None)

    def _refused(self, node: str, shape: object, now: float) -> None:
        first, longest = cool_down.SECONDS
        before = self.cool_downs.get((node, shape))
        length = first
        if before is not None:
            length = before.length if before.active else min(2 * before.length, longest)
        self.cool_downs[node, shape] = CoolDown(now + length, length)

    # What follows from it

    def holders(self, node: str) -> dict[str, PodFacts]:
        there = {uid: pod for uid, pod in self.bound.items() if pod.node == node}
        return there | {uid: decision.pod for uid, decision in self.decided.items() if decision.node == node}

    def amounts(self, uid: str) -> dict[int, Amounts] | None:
        """What a pod holds by position of the GPU, or None: nobody knows where."""
        if uid in self.decided:
            return self._decided_charges(self.decided[uid])
        pod = self.bound[uid]
        facts = self.facts.get(pod.node)
        charges = pod_gpus.read(pod, facts) if facts is not None else None
        return None if charges is None else by_gpu(charges)

    def used(self, node: str) -> list[Amounts]:
        """Everything charged on each GPU of a node."""
        gpus = self.facts[node].gpus
        used: list[Amounts] = [(0, 0)] * len(gpus)
        for uid, pod in self.holders(node).items():
            amounts = self.amounts(uid)
            if amounts is None:
                everywhere = ALL_OF_IT if pod.spec_unknown else self._in_unit(pod.spec_units, uid, node)
                used = [added(taken, (everywhere, 0)) for taken in used]
            for gpu, amount in (amounts or {}).items():
                used[gpu] = added(used[gpu], amount)
        for old_place in self.old_places.values():
            if old_place.node == node:
                for i, one in enumerate(gpus):
                    used[i] = added(used[i], old_place.amounts.get(one.key, (0, 0)))
        return used

    def _in_unit(self, amount: int, uid: str, node: str) -> int:
        """What was decided in another unit holds as much, rounded up, whatever its node counts in meanwhile."""
        decision, unit = self.decided.get(uid), self.facts[node].unit
        if decision is None or decision.unit == unit:
            return amount
        return amount * 1024 if unit == "MiB" else -(-amount // 1024)

    def room(self, node: str) -> Room:
        used = self.used(node)
        return Room.of(self.facts[node], [units for units, _ in used], [slots for _, slots in used])

    def can_take(self, asked: Request, uid: str, node: str, room: Room | None) -> bool:
        """Whether a pod fits a node, nominations aside, by trying everything."""
        facts = self.facts.get(node)
        if facts is None or room is None or not may_go(asked, facts) or self._still_starting(asked, uid, facts):
            return False
        cooling = self.cool_downs.get((node, shape(asked)))
        if cooling is not None and cooling.active:
            return False
        return oracle.fits(asked, facts.pin, oracle.spots(room))

    def nominated_ahead(self, pod: PodFacts, node: str) -> bool:
        there = self.holders(node)
        return any(
            other.nominated == node and other.priority >= pod.priority and uid != pod.uid and uid not in there
            for uid, other in self.nominated.items()
        )

    def _decided_charges(self, decision: Decision) -> dict[int, Amounts] | None:
        facts = self.facts.get(decision.node)
        position = {gpu.key: i for i, gpu in enumerate(facts.gpus)} if facts is not None else {}
        asked = decision.pod.request
        if (
            facts is None
            or not isinstance(asked, Request)
            or any(k not in position for ks in decision.keys for k in ks)
        ):
            return None
        if decision.held and (decision.unit, decision.slots) != (facts.unit, facts.slots):
            return None
        places = tuple(tuple(position[key] for key in keys) for keys in decision.keys)
        if not decision.held and any(share.kind.slots for share in asked.shares):  # it is as its binding is written
            there = {gpu.key: i for i, gpu in enumerate(decision.facts.gpus)}
            chosen = tuple(tuple(there[key] for key in keys) for keys in decision.keys)
            written = pod_gpus.read(bound(decision.pod, decision.facts, chosen), facts)
            return None if written is None else by_gpu(written)
        return by_gpu(pod_gpus.charges(asked.shares, facts, places, decision.unit))

    def _bound_amounts(self, pod: PodFacts) -> dict[str, Amounts] | None:
        facts = self.facts.get(pod.node)
        charges = pod_gpus.read(pod, facts) if facts is not None else None
        return (
            None if facts is None or charges is None else {facts.gpus[c.gpu].key: (c.units, c.slots) for c in charges}
        )

    def _still_starting(self, asked: Request, uid: str, facts: NodeFacts) -> bool:
        if facts.pin is not Pin.PLUGIN:
            return False
        waiting = [
            pod.request
            for other, pod in self.holders(facts.name).items()
            if other != uid and not pod.running and not (pod.node and pod.annotation(names.ALIYUN_ASSIGNED) == "true")
        ]
        pairs = [
            (mine, theirs)
            for other_claim in waiting
            if isinstance(other_claim, Request)
            for theirs in other_claim.shares
            for mine in asked.shares
        ]
        return any(
            (mine.units and mine.units == theirs.units and mine.gpus != theirs.gpus)
            or (mine.role is theirs.role is Role.INIT and _amount(mine) == _amount(theirs))
            for mine, theirs in pairs
        )


def may_go(asked: Request, facts: NodeFacts) -> bool:
    wanted = Pin.DIRECT if facts.pin is Pin.DIRECT else Pin.PLUGIN
    if facts.blocked is not None or asked.pin is not wanted or asked.unit not in (None, facts.unit):
        return False
    if facts.limit and any(share.units > facts.limit for share in asked.shares):
        return False
    if any(s.kind.slots for s in asked.shares) and not facts.slots:
        return False
    if any(s.kind is NVIDIA_WHOLE for s in asked.shares) and not facts.nvidia_whole:
        return False
    one = len(asked.shares) == 1 and asked.shares[0].gpus == 1 and not asked.shares[0].kind.exclusive
    return facts.pin is not Pin.ALIYUN or (one and asked.shares[0].role == "app")


def shape(asked: Request) -> object:
    """All that kubelet's refusal of such a pod says: the unit is the node's."""
    return asked.pin, tuple((s.role, s.kind, s.units or s.slot_bytes, s.gpus) for s in asked.shares)


def signature(facts: NodeFacts | None) -> object:
    """What a node publishes, health included."""
    if facts is None:
        return None
    return (facts.unit, facts.pin, facts.gpus, facts.limit, facts.slots, facts.nvidia_whole)


def layout(facts: NodeFacts | None) -> object:
    """The same without health: while this stays, a decision of ours stays valid."""
    gpus = [(gpu.key, gpu.index, gpu.total) for gpu in facts.gpus] if facts is not None else []
    return None if facts is None else (facts.unit, facts.pin, facts.slots, gpus)


def forged(pod: objects.Pod, node: NodeFacts, kind: str, places: Places) -> dict[str, str]:
    """Annotations such as a tenant, another scheduler or an older version may have left."""
    seen = facts_of(pod)
    if kind == "none" or not isinstance(seen.request, Request):
        return {}
    notes = dict(bound(seen, node, places).annotations)
    if kind == "contradictory":
        notes[names.ALIYUN_IDX] = str(len(node.gpus))
        notes[names.ALLOCATION] = msgspec.json.encode({"0": {"0": 1, "1": 2}}).decode()
    elif kind == "garbage":
        notes = {names.ALIYUN_IDX: "zero", names.ALLOCATION: "{", names.VISIBLE_PREFIX + "0": "GPU-of-nobody"}
    elif kind == "index only":
        notes = {names.ALIYUN_IDX: str(node.gpus[places[0][0]].index)}
    return notes


def is_refusal(answer: Places | Refusal) -> bool:
    return isinstance(answer, Refusal)


def _amount(share: Share) -> tuple[Kind, int, int]:
    return share.kind, share.units, share.gpus
