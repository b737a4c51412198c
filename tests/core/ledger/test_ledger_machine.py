"""The ledger against a model of the world, step by step, in any order that can happen.

An API server of plain dicts is the truth; its watches lag, repeat and bunch; pods are bound by us, by hand and with
forged annotations; nodes change under their pods; the extender restarts. After every step: nothing was given out
twice by a decision of ours, every sum is what it is when counted again, every answer is what trying everything finds,
and whoever may go ahead now has been woken.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Refusal, Request
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import NO_SHARED_GPU, RESERVED, Question
from gpushare.core.scheduling import ranking
from tests.core import world
from tests.core.world import Api, Mirror
from tests.support import builders
from tests.support.builders import container

NODES = ("a", "b")
NUMBERS = st.integers(0, 11)
POLICIES = st.sampled_from(["binpack", "spread"])
SHAPES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2,), {}),
    ((4,), {"unit": "MiB"}),
    ((8,), {}),
    ((3, 3), {}),
    ((4, 2, 2), {}),
    ((4,), {"split": 2}),
    ((2,), {"split": 2}),
    ((), {"whole": 1}),
    ((2,), {"whole": 1}),
    ((2,), {"init": (4,)}),
    ((2,), {"sidecars": (2,), "init": (3,)}),
    ((), {"mps": 1}),
    ((), {"mps": 2, "slot_memory": "3Mi"}),
    ((2,), {"mps": 1, "whole": 1}),
    ((), {"nvidia": 1}),
    ((), {"mps": 1, "nvidia": 1, "slot_memory": "2Gi"}),
]


def probes() -> Iterator[tuple[PodFacts, Question]]:
    """Pods that nobody creates: what would they be told?"""
    for i, (memory, more) in enumerate(SHAPES):
        for direct in (True, False) if not more.get("nvidia") else (True,):
            uid, namespace = f"probe-{i}-{direct}", f"probes-{i % 2}"
            pod = builders.pod(*memory, uid=uid, namespace=namespace, priority=i % 3, direct=direct, **more)
            assert isinstance(pod.request, Request)
            yield pod, Question(pod.request)


PROBES = list(probes())


def mostly(usual: object, *others: object) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * (6 * len(others)) + list(others))


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "totals": draw(st.lists(st.sampled_from([4, 6, 8, 10]), min_size=1, max_size=3)),
        "pin": draw(st.sampled_from(["ours", "ours", "ours", "ours", "ours", "ours", "direct", "plugin", "aliyun"])),
        "unit": draw(mostly("MiB", "GiB")),
        "unhealthy": draw(mostly((), (0,), (1,))),
        "backwards": draw(mostly(False, True)),
        "state": draw(mostly("ready", "draining")),
        "limit": draw(mostly(0, 2, 4)),
        "slots": draw(st.sampled_from([0, 1, 2, 3])),
        "nvidia_whole": draw(st.booleans()),
        "reserved": draw(mostly("", "for Kim")),
    }


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Every other one is plain, so that there are equals among them."""
    apps: list[objects.Container] = []
    inits: list[objects.Container] = []
    if draw(st.booleans()):
        memory, split = draw(st.sampled_from([(2, None), (4, None), (2, 2), (4, 2)]))
        apps.append(container("c", memory))
    else:
        split = draw(st.sampled_from([None, None, None, 2]))
        for i in range(draw(st.integers(1, 3))):
            place = draw(st.sampled_from(["app", "app", "app", "init", "sidecar"]))
            kind = draw(st.sampled_from([*["memory"] * 6, "whole", "nvidia", "mps", "mps"]))
            asked = draw(st.integers(1, 4)) * (split or 1) if kind == "memory" else 1
            made = builders.asking(f"c{i}", kind, asked, sidecar=place == "sidecar")
            (apps if place == "app" else inits).append(made)
    return {
        "slot_memory": draw(st.sampled_from([None, None, "2Mi", "1500Ki", "1Gi"])),
        "containers": apps,
        "inits": inits,
        "split": split,
        "usual": draw(mostly(True, False)),
        "policy": draw(st.sampled_from([None, "binpack", "spread"])),
        "priority": draw(st.integers(0, 2)),
        "claim_volume": draw(mostly(False, True)),
    }


def resized(shape: dict[str, Any], gpu: int, more: int) -> list[int]:
    totals = list(shape["totals"])
    totals[gpu % len(totals)] = max(totals[gpu % len(totals)] + more, 1)
    return totals


TWEAKS: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "drain": lambda shape, gpu: {"state": "draining"},
    "grow": lambda shape, gpu: {"totals": resized(shape, gpu, 2)},
    "heal": lambda shape, gpu: {"unhealthy": (), "state": "ready"},
    "limit": lambda shape, gpu: {"limit": (0, 2, 4)[gpu]},
    "lose": lambda shape, gpu: {"totals": shape["totals"][:-1] or shape["totals"]},
    "pin": lambda shape, gpu: {"pin": ("direct", "plugin", "aliyun")[gpu]},
    "pin as ours": lambda shape, gpu: {"pin": "ours", "unit": "MiB"},
    "reserve": lambda shape, gpu: {"reserved": ("", "for Kim", "for Lee")[gpu]},
    "sell": lambda shape, gpu: {"slots": gpu, "nvidia_whole": gpu > 0},
    "shrink": lambda shape, gpu: {"totals": resized(shape, gpu, -3)},
    "break": lambda shape, gpu: {"unhealthy": (gpu,)},
    "turn": lambda shape, gpu: {"backwards": not shape["backwards"]},
    "unit": lambda shape, gpu: {"unit": "GiB"},
}


class Flight:
    """A binding on its way to the API server and back."""

    def __init__(self, pod: PodFacts, node: str, notes: dict[str, str]) -> None:
        self.pod, self.node, self.notes = pod, node, notes
        self.answer: bool | None = None


class Grant:
    """A decision of ours: what it gave, and what the node looked like then."""

    def __init__(self, node: NodeFacts, pod: PodFacts, places: Places) -> None:
        assert isinstance(pod.request, Request)
        charges = gpu_choice.charges(pod.request.shares, node, places)
        self.node, self.layout = node.name, world.layout(node)
        self.amounts = {node.gpus[charge.gpu].key: (charge.units, charge.slots) for charge in charges}


def when(on_node: bool | None = None) -> Callable[[Any], Any]:
    """A step that needs a pod: any, a pending one or a bound one."""
    return precondition(lambda self: self.pick(0, on_node=on_node) is not None)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.api, self.mirror, self.ledger = Api(), Mirror(), Ledger()
        self.now = 1000.0
        self.steps = 0  # since the last restart
        self.reserving = False  # the policy permits reservations
        self.direct = True  # how most nodes pin, and most pods expect it
        self.shapes: dict[str, dict[str, Any]] = {}
        self.flights: dict[str, Flight] = {}
        self.grants: dict[str, Grant] = {}
        self.by_hand: set[str] = set()  # pods that somebody else bound, whatever their annotations say
        self.fitted: dict[tuple[str, str], bool] = {}

    # Nodes

    @initialize(direct=st.booleans(), first=nodes(), second=nodes(), some=st.lists(pods(), min_size=3, max_size=5))
    def begin(self, direct: bool, first: dict[str, Any], second: dict[str, Any], some: list[dict[str, Any]]) -> None:
        self.direct = direct
        for name, shape in zip(NODES, (first, second), strict=True):
            self.put_node(name, shape)
        self.node_events()
        for shape in some:
            self.create(shape)

    @rule(name=st.sampled_from(NODES), shape=st.one_of(nodes(), st.none()))
    def replace_node(self, name: str, shape: dict[str, Any] | None) -> None:
        if shape is not None:
            self.put_node(name, shape)
        elif name in self.api.nodes:
            self.api.drop_node(name)

    @rule(
        name=st.sampled_from(NODES),
        what=st.sampled_from(sorted(TWEAKS)),
        gpu=st.integers(0, 2),
        seen=mostly(True, False),
    )
    def tweak_node(self, name: str, what: str, gpu: int, seen: bool) -> None:
        """One thing changes, and the watch mostly shows it at once."""
        shape = {**self.shapes[name], **TWEAKS[what](self.shapes[name], gpu)}
        self.put_node(name, shape)
        if seen:
            self.node_events()

    def put_node(self, name: str, shape: dict[str, Any]) -> None:
        self.shapes[name] = shape
        uuids = [f"GPU-{name}-{i}" for i in range(len(shape["totals"]))]
        if shape["backwards"]:
            uuids.reverse()
        pin = shape["pin"] if shape["pin"] != "ours" else "direct" if self.direct else "plugin"
        totals = [shape["totals"][0]] * len(uuids) if pin == "aliyun" else shape["totals"]
        more = {key: shape[key] for key in ("unit", "unhealthy", "state", "limit", "reserved")}
        if pin == "direct":
            more |= {key: shape[key] for key in ("slots", "nvidia_whole")}
        self.api.put_node(builders.node(*totals, name=name, pin=pin, uuids=uuids, **more))

    @precondition(lambda self: self.api.node_events)
    @rule()
    def node_events(self) -> None:
        """A watch may skip versions, but ends at the last."""
        for name in self.api.node_events:
            self.see_node(name)
        self.api.node_events.clear()

    def see_node(self, name: str) -> None:
        facts = world.node_facts(self.api.nodes.get(name))
        if facts is None:
            self.ledger.remove_node(name)
        else:
            self.ledger.set_node(facts)
        self.mirror.set_node(name, self.with_reservation(facts))

    @rule(reserving=st.booleans())
    def permit_reservations(self, reserving: bool) -> None:
        self.reserving = reserving
        self.ledger.respect_reservations(reserving)
        for name, facts in list(self.mirror.facts.items()):
            self.mirror.set_node(name, self.with_reservation(facts))

    def with_reservation(self, facts: NodeFacts | None) -> NodeFacts | None:
        if facts is None or not facts.reserved or facts.blocked not in (None, RESERVED):
            return facts
        return replace(facts, blocked=RESERVED if self.reserving else None)

    # Pods come and go

    @rule(shape=pods())
    def create(self, shape: dict[str, Any]) -> None:
        if len(self.api.pods) < 9:
            self.api.made += 1
            name, uid, created = f"p{self.api.made % 4}", f"u{self.api.made}", f"T{self.api.made:04}"
            direct = self.direct is shape["usual"]
            more = {key: value for key, value in shape.items() if key != "usual"}
            self.api.put(builders.api_pod(name=name, uid=uid, created=created, direct=direct, **more))

    def pick(self, number: int, *, on_node: bool | None = None) -> objects.Pod | None:
        found = [p for p in self.api.pods.values() if on_node is None or bool(p.spec.node_name) is on_node]
        return found[number % len(found)] if found else None

    @when(on_node=False)
    @rule(number=NUMBERS, node=st.sampled_from(("", *NODES)), seen=st.booleans())
    def nominate(self, number: int, node: str, seen: bool) -> None:
        pod = self.pick(number, on_node=False)
        assert pod is not None
        self.api.put(replace(pod, status=replace(pod.status, nominated_node_name=node or None)))
        if seen:
            self.pod_events(100)

    @when()
    @rule(number=NUMBERS, what=st.sampled_from(["terminate", "delete", "recreate"]))
    def leave(self, number: int, what: str) -> None:
        pod = self.pick(number)
        assert pod is not None
        if what == "terminate":
            self.api.put(replace(pod, metadata=replace(pod.metadata, deletion_timestamp="now")))
            return
        self.api.delete(pod.metadata.uid)
        if what == "recreate":  # as a StatefulSet does: the same name at once, another uid
            self.api.made += 1
            kept = (names.GPU_COUNT, names.POLICY, *names.SLOT_MEMORY)
            notes = {k: v for k, v in (pod.metadata.annotations or {}).items() if k in kept}
            again = replace(pod.metadata, uid=f"u{self.api.made}", annotations=notes, deletion_timestamp=None)
            self.api.put(objects.Pod(again, replace(pod.spec, node_name=None), objects.PodStatus("Pending")))

    @when(on_node=True)
    @rule(
        number=NUMBERS,
        what=st.sampled_from(["assigned", "Running", "Running", "Succeeded", "Failed", *[world.REFUSED] * 3]),
        seen=st.booleans(),
    )
    def go_on(self, number: int, what: str, seen: bool) -> None:
        """What kubelet does with a bound pod."""
        pod = self.pick(number, on_node=True)
        assert pod is not None
        if what == "assigned":
            self.api.put(world.annotated(pod, {names.ALIYUN_ASSIGNED: "true"}))
        elif pod.status.phase in ("Pending", "Running"):
            phase, reason = ("Failed", what) if what == world.REFUSED else (what, None)
            self.api.put(replace(pod, status=replace(pod.status, phase=phase, reason=reason)))
        if seen:
            self.pod_events(100)

    # Others write too

    def some_places(self, pod: objects.Pod, node: str, number: int) -> tuple[NodeFacts, Places] | None:
        facts, asked = world.node_facts(self.api.nodes.get(node)), world.facts_of(pod).request
        if facts is None or not isinstance(asked, Request) or any(s.gpus > len(facts.gpus) for s in asked.shares):
            return None
        count = len(facts.gpus)
        return facts, tuple(tuple((number + i + j) % count for j in range(s.gpus)) for i, s in enumerate(asked.shares))

    @when(on_node=False)
    @rule(
        number=NUMBERS,
        node=st.sampled_from(NODES),
        kind=st.sampled_from(["none", "valid", "contradictory", "garbage", "index only"]),
        seen=st.booleans(),
    )
    def bind_by_hand(self, number: int, node: str, kind: str, seen: bool) -> None:
        pod = self.pick(number, on_node=False)
        found = self.some_places(pod, node, number) if pod is not None else None
        if pod is not None and found is not None:
            if self.api.bind(pod.metadata.uid, node, world.forged(pod, found[0], kind, found[1])):
                self.grants.pop(pod.metadata.uid, None)
                self.by_hand.add(pod.metadata.uid)
            if seen:
                self.pod_events(100)

    @when(on_node=True)
    @rule(
        number=NUMBERS,
        to=st.integers(0, 2),
        kind=mostly("valid", "contradictory", "garbage", "index only"),
        seen=st.booleans(),
    )
    def move(self, number: int, to: int, kind: str, seen: bool) -> None:
        """The annotations of a bound pod change: made true by its node, or tampered with."""
        pod = self.pick(number, on_node=True)
        assert pod is not None
        found = self.some_places(pod, pod.spec.node_name or "", to)
        if found is not None:
            if seen:
                self.pod_events(100)
            self.api.put(world.annotated(pod, world.forged(pod, found[0], kind, found[1])))
            self.grants.pop(pod.metadata.uid, None)
        if seen:
            self.pod_events(100)

    @when()
    @rule(
        number=NUMBERS,
        key=st.sampled_from([names.GPU_COUNT, names.GPU_COUNT, names.POLICY, names.MEMORY_UNIT, *names.SLOT_MEMORY]),
        value=st.sampled_from([None, "1", "2", "many"]),
    )
    def ask_otherwise(self, number: int, key: str, value: str | None) -> None:
        """A tenant changes what the pod asks, which is allowed at any time, and means nothing once it is bound."""
        pod = self.pick(number)
        if pod is not None:
            self.api.put(world.annotated(pod, {key: value}))
            if not pod.spec.node_name:
                self.grants.pop(pod.metadata.uid, None)

    # Our watch

    @precondition(lambda self: self.api.pod_events)
    @rule(most=st.sampled_from([1, 2, 5, 100]))
    def pod_events(self, most: int) -> None:
        for event in self.api.pod_events[:most]:
            self.deliver(event)
        del self.api.pod_events[:most]

    def deliver(self, event: world.Event) -> None:
        pod = world.facts_of(event.pod)
        if event.gone:
            self.ledger.forget(pod.uid)
            self.mirror.forget(pod.uid)
        else:
            self.see(pod)

    def see(self, pod: PodFacts) -> None:
        self.ledger.observe(pod, self.now)
        self.mirror.observe(pod, self.now)

    @precondition(lambda self: self.mirror.bound)
    @rule(number=NUMBERS, old=st.booleans())
    def see_again(self, number: int, old: bool) -> None:
        """The same version once more, or one from before it was bound."""
        found = list(self.mirror.bound.values())
        pod = found[number % len(found)]
        if old and pod.uid in self.api.unbound:
            self.see(world.facts_of(self.api.unbound[pod.uid]))
        elif not old:
            self.see(pod)

    @rule()
    def relist(self) -> None:
        for pod in self.api.pods.values():
            self.see(world.facts_of(pod))
        kept = set(self.api.pods)
        unsure = {pod.uid for pod in self.ledger.relisted(kept)}
        assert unsure == {*self.mirror.bound, *self.mirror.decided} - self.mirror.seen - kept
        for uid in unsure:
            self.ledger.forget(uid)  # asked for, and not there
        for uid in {*self.mirror.bound, *self.mirror.decided, *self.mirror.nominated} - kept:
            self.mirror.forget(uid)
        self.api.pod_events.clear()

    # Decisions of our own

    def as_a_scheduler_sees_it(self, uid: str) -> PodFacts | None:
        """A pod that is not being bound, in its last version without a node: our own watch may know better, or may
        not have shown it at all."""
        if uid in self.flights or uid not in self.api.unbound:
            return None
        pod = world.facts_of(self.api.unbound[uid])
        return pod if isinstance(pod.request, Request) and not pod.terminating else None

    def pick_for_scheduler(self, number: int, *, pending: bool = False) -> PodFacts | None:
        found = [self.as_a_scheduler_sees_it(uid) for uid in self.api.unbound]
        able = [pod for pod in found if pod is not None and not (pending and self.api.pods[pod.uid].spec.node_name)]
        return able[number % len(able)] if able else None

    @when()
    @rule(number=NUMBERS, policy=POLICIES, pending=mostly(True, False), pods=st.integers(1, 3))
    def schedule(self, number: int, policy: str, pending: bool, pods: int) -> None:
        """One pod after the other, before any of them is bound."""
        for i in range(pods):
            pod = self.pick_for_scheduler(number + i, pending=pending)
            if pod is not None:
                self.filter_and_prioritize(pod, policy)

    def filter_and_prioritize(self, pod: PodFacts, policy: str) -> None:
        """The best node is held."""
        assert isinstance(pod.request, Request)
        self.ledger.release(pod.uid)
        self.mirror.release(pod.uid)
        fits = self.ledger.fitting(pod.request, pod, NODES)
        scores = ranking.best(self.ledger, pod.request, pod, fits, policy)
        assert {node for node, _ in scores} == set(fits)
        if scores:
            self.check_decision(pod, scores[0][0], self.ledger.assume(pod, scores[0][0], policy, self.now), True, True)

    @when()
    @rule(number=NUMBERS, node=st.sampled_from(("", *NODES)), policy=POLICIES)
    def hold(self, number: int, node: str, policy: str) -> None:
        """Somewhere, or no longer."""
        pod = self.pick_for_scheduler(number)
        if pod is None:
            return
        assert isinstance(pod.request, Request)
        self.ledger.release(pod.uid)
        self.mirror.release(pod.uid)
        if node:
            fits = node in self.ledger.fitting(pod.request, pod, [node])
            self.check_decision(pod, node, self.ledger.assume(pod, node, policy, self.now), fits, True)

    @when()
    @rule(number=NUMBERS, node=st.sampled_from(NODES), policy=POLICIES)
    def reserve_anywhere(self, number: int, node: str, policy: str) -> None:
        pod = self.pick_for_scheduler(number)
        if pod is not None:
            self.reserve(pod, node, policy)

    def held(self, number: int) -> world.Decision | None:
        found = [decision for decision in self.mirror.decided.values() if decision.held]
        return found[number % len(found)] if found else None

    @precondition(lambda self: self.held(0) is not None)
    @rule(number=NUMBERS, policy=POLICIES, first=st.sampled_from(["", "", *["stranger"] * 4, *sorted(TWEAKS)]))
    def reserve_what_is_held(self, number: int, policy: str, first: str) -> None:
        """Perhaps after something came in between."""
        decision = self.held(number)
        assert decision is not None
        uid, node = decision.pod.uid, decision.node
        if first == "stranger":
            self.bind_by_hand(number + 1, node, "none", True)
        elif first:
            gpu = next((i for i, gpu in enumerate(self.mirror.facts[node].gpus) if gpu.key == decision.keys[0][0]), 0)
            self.tweak_node(node, first, gpu, True)
        pod = self.as_a_scheduler_sees_it(uid)
        if pod is not None:
            self.reserve(pod, node, policy)

    def reserve(self, pod: PodFacts, node: str, policy: str) -> None:
        assert isinstance(pod.request, Request)
        expected = self.can_reserve(pod, node)
        places = self.ledger.reserve(pod, node, policy)
        self.check_decision(pod, node, places, expected, False)
        if not isinstance(places, Refusal):
            facts = self.mirror.facts[node]
            notes = pod_gpus.write(pod.request, facts, places, extender="0a1b2c3d", nanoseconds=1)
            self.flights[pod.uid] = Flight(pod, node, notes)

    def can_reserve(self, pod: PodFacts, node: str) -> bool | None:
        """None: what is held there may or may not be had; both are right as long as nothing is given out twice."""
        assert isinstance(pod.request, Request)
        held = self.mirror.decided.get(pod.uid)
        if held is not None and held.node == node:
            return None
        return pod.uid not in self.mirror.bound and node in self.ledger.fitting(pod.request, pod, [node])

    def check_decision(
        self, pod: PodFacts, node: str, answer: Places | Refusal, expected: bool | None, held: bool
    ) -> None:
        decided = pod.uid in self.mirror.bound
        if expected is not None:
            assert world.is_refusal(answer) is not (expected and not decided)
        if not decided:
            self.mirror.release(pod.uid)
            self.grants.pop(pod.uid, None)
        if isinstance(answer, Refusal):
            return
        assert isinstance(pod.request, Request)
        facts = self.mirror.facts[node]
        self.mirror.decide(pod, node, answer, self.now, held=held)
        self.grants[pod.uid] = Grant(facts, pod, answer)
        used = self.mirror.used(node)
        for gpu in {gpu for chosen in answer for gpu in chosen}:
            assert used[gpu][0] <= facts.gpus[gpu].total
            holds_slots = any(s.kind.slots and gpu in at for s, at in zip(pod.request.shares, answer, strict=True))
            assert not holds_slots or used[gpu][1] <= facts.slots
            assert facts.gpus[gpu].healthy
        assert world.may_go(pod.request, facts)

    @when(on_node=False)
    @rule(number=NUMBERS, policy=POLICIES, steps=st.integers(1, 4))
    def schedule_and_bind(self, number: int, policy: str, steps: int) -> None:
        """All goes well, as it mostly does, and as far as it has come."""
        pod = self.pick_for_scheduler(number, pending=True)
        if pod is None:
            return
        uid = pod.uid
        self.filter_and_prioritize(pod, policy)
        if uid not in self.mirror.decided:
            return
        self.reserve(pod, self.mirror.decided[uid].node, policy)
        flight = self.flights.get(uid)
        if flight is not None and steps > 1:
            flight.answer = self.api.bind(uid, flight.node, flight.notes)
        if flight is not None and steps > 2:
            self.land(flight)
        if steps > 3:
            self.pod_events(100)

    @precondition(lambda self: self.flights)
    @rule(number=NUMBERS, answered=st.booleans())
    def fly_on(self, number: int, answered: bool) -> None:
        """A binding reaches the API server, or its answer comes; that may also be lost on the way there."""
        flight = list(self.flights.values())[number % len(self.flights)]
        if answered:
            self.land(flight)
        elif flight.answer is None:
            flight.answer = self.api.bind(flight.pod.uid, flight.node, flight.notes)

    def land(self, flight: Flight) -> None:
        uid = flight.pod.uid
        del self.flights[uid]
        if flight.answer:
            pod = request.bound(flight.pod, flight.node, flight.notes)
            self.ledger.confirm(pod)
            self.mirror.confirm(pod)
        else:
            self.ledger.undo(uid)
            self.mirror.undo(uid)

    # Time

    @rule(seconds=st.sampled_from([1.0, 1.0, 1.0, 5.0, 5.0, 9.0, 11.0, 31.0, 901.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.ledger.expire(self.now)
        self.mirror.expire(self.now)

    def settle(self) -> None:
        """All answers and events arrive, and what ends by time has ended."""
        for flight in list(self.flights.values()):
            self.land(flight)
        self.node_events()
        self.pod_events(len(self.api.pod_events))
        self.wait(2000.0)

    @precondition(lambda self: self.steps > 20)
    @rule(change=st.booleans(), pods_first=st.booleans())
    def restart(self, change: bool, pods_first: bool) -> None:
        """A new extender that reads the API server knows what the old one knew."""
        self.steps = 0
        self.settle()
        ledger, mirror, steps = Ledger(), Mirror(), [self.read_nodes, self.read_pods]
        ledger.respect_reservations(self.reserving)
        for step in reversed(steps) if pods_first else steps:
            step(ledger, mirror)
        new, old = picture(ledger), picture(self.ledger)
        assert new == old, [(key, new.get(key), old.get(key)) for key in {*new, *old} if new.get(key) != old.get(key)]
        if change:
            self.ledger, self.mirror = ledger, mirror

    def read_nodes(self, ledger: Ledger, mirror: Mirror) -> None:
        for name, node in self.api.nodes.items():
            facts = world.node_facts(node)
            assert facts is not None
            ledger.set_node(facts)
            mirror.set_node(name, self.with_reservation(facts))

    def read_pods(self, ledger: Ledger, mirror: Mirror) -> None:
        for pod in self.api.pods.values():
            ledger.observe(world.facts_of(pod), self.now)
            mirror.observe(world.facts_of(pod), self.now)
        assert ledger.relisted(set(self.api.pods)) == []

    def teardown(self) -> None:
        """When everybody is gone, everything is free again."""
        for uid in list(self.api.pods):
            self.api.delete(uid)
        self.settle()
        assert not self.ledger.holdings()
        assert not self.ledger.has_promises()
        assert set(self.ledger.node_names()) == set(self.api.nodes)
        for state in self.ledger.nodes():
            assert state.room is not None
            assert list(state.room.free) == [gpu.total for gpu in state.room.facts.gpus]
            assert all(state.room.empty)
            assert set(state.room.free_slots) == {state.room.facts.slots}
            assert (state.unlocated, state._split, state._nominated, state._old_places) == (0, 0, {}, {})

    # What is always true

    @invariant()
    def all_is_well(self) -> None:
        self.steps += 1
        self.nothing_is_given_out_twice()
        self.every_sum_is_what_it_is_when_counted_again()
        self.every_answer_is_what_trying_everything_finds()
        self.kept_answers_are_fresh()

    def nothing_is_given_out_twice(self) -> None:
        """Whether or not the ledger still knows of it: what we promised, and has not ended, fits."""
        given: dict[tuple[str, str], world.Amounts] = {}
        for uid, grant in list(self.grants.items()):
            pod = self.api.pods.get(uid)
            lives = pod is not None and pod.status.phase in ("Pending", "Running")
            stamped = pod is not None and names.EXTENDER in (pod.metadata.annotations or {})
            ours = stamped and pod is not None and pod.spec.node_name and uid not in self.by_hand
            coming = pod is not None and uid in self.flights and not pod.spec.node_name
            if uid not in self.mirror.decided and not (lives and (ours or coming)):
                del self.grants[uid]
            elif world.layout(self.mirror.facts.get(grant.node)) == grant.layout:
                for key, amount in grant.amounts.items():
                    given[grant.node, key] = world.added(given.get((grant.node, key), (0, 0)), amount)
        for (node, key), (units, slots) in given.items():
            facts = self.mirror.facts[node]
            assert units <= next(gpu.total for gpu in facts.gpus if gpu.key == key)
            assert slots <= facts.slots

    def every_sum_is_what_it_is_when_counted_again(self) -> None:
        assert {holding.pod.uid for holding in self.ledger.holdings()} == {*self.mirror.bound, *self.mirror.decided}
        assert self.ledger._nominations == {uid: pod.nominated for uid, pod in self.mirror.nominated.items()}
        for state in self.ledger.nodes():
            name, holdings = state.name, state.holdings()
            assert state.facts == self.mirror.facts.get(name)
            assert {holding.pod.uid for holding in holdings} == set(self.mirror.holders(name))
            for holding in holdings:
                assert (holding.state is State.BOUND) is (holding.pod.uid in self.mirror.bound)
            if state.facts is not None:
                used = self.mirror.used(name)
                taken, slots = state.effective(), state.facts.slots
                assert list(zip(taken.units, taken.slots, strict=True)) == used
                assert state.room is not None
                totals = [gpu.total for gpu in state.facts.gpus]
                assert list(state.room.free) == [max(t - u, 0) for t, (u, _) in zip(totals, used, strict=True)]
                assert list(state.room.free_slots) == [max(slots - taken, 0) for _, taken in used]

    def every_answer_is_what_trying_everything_finds(self) -> None:
        rooms = {node: self.mirror.room(node) for node in self.mirror.facts}
        grown = self.ledger.take_grown()
        for pod, question in PROBES:
            fits = self.ledger.fitting(question.request, pod, (*NODES, "nowhere"))
            assert "nowhere" not in fits
            for node in NODES:
                assert (node in fits) is (self.ledger.refusal(question, node, pod) is None)
                alone = self.mirror.can_take(question.request, pod.uid, node, rooms.get(node))
                if self.mirror.nominated_ahead(pod, node):
                    assert alone or node not in fits
                else:
                    assert alone is (node in fits), (pod, node)
                if node in fits and not self.fitted.get((pod.uid, node), False):
                    assert node in grown, "nobody would be woken"
                self.fitted[pod.uid, node] = node in fits

    def kept_answers_are_fresh(self) -> None:
        """A few at a time: each step asks others, so that answers of any age are met."""
        for pod, question in PROBES[self.steps % 5 :: 5]:
            budget = Budget(cost.UNHURRIED_LOOKS)
            answers = self.ledger.answers(question.request, pod.namespace, list(self.ledger.node_names()), budget)
            assert set(answers.refusals) == set(self.ledger.node_names())
            for state in self.ledger.nodes():
                alone = NO_SHARED_GPU if state.room is None else Question(question.request).refusal(state.room)
                waits = state.still_starting(question.request, "", budget) if state.room is not None else None
                assert answers.refusals[state.name] == (alone or waits)


def picture(ledger: Ledger) -> dict[str, object]:
    """All that should be the same in two ledgers that know the same."""
    seen: dict[str, object] = {
        "nominated": ledger._nominations,
        "special": ledger._index.special,
        "assumed": ledger._assumed,
        "timed": ledger._timed,
        "largest": {lane: there for lane, there in ledger._index._largest.items() if there},
        "spots": {lane: there for lane, there in ledger._index._spots.items() if there},
        "limits": ledger._index._limits,
        "lowest limit": ledger._index._lowest_limit,
    }
    for s in ledger.nodes():
        seen[s.name] = (
            s.facts,
            s.used,
            s.used_slots,
            s.unlocated,
            s._split,
            sorted(s._nominated),
            s.room,
            s._old_places,
            sorted(holding.pod.uid for holding in s.holdings()),
        )
    for h in ledger.holdings():
        seen[h.pod.uid] = (h.pod, h.node, h.state, h.charges, h.unlocated, h.splits)
    return seen


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
