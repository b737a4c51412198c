"""The extender in a scenario: its real parts, wired as `app` wires them, on a stand-in cluster and in virtual time.

Only HTTP and reflectors are left out: verbs get the bytes a scheduler would send, watches feed the real sinks.
"""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gpushare.core.facts import names
from gpushare.core.facts.model import Unit
from gpushare.core.facts.objects import ConfigMap, Node, Pod
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.extender import watches, wire
from gpushare.extender.binder import Binder
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs
from gpushare.kube.errors import ApiError
from gpushare.kube.events import Recorder
from tests.scenarios import cluster
from tests.support import objects
from tests.support.builders import node_state
from tests.support.objects import Object

KINDS: dict[str, type[Any]] = {"pods": Pod, "nodes": Node, "maps": ConfigMap}
UNREADY = "the cluster is not read yet"


class World:
    """A cluster and one extender; `restart` replaces the extender by a new process."""

    def __init__(self, policy: str, unit: Unit | None) -> None:
        self.policy, self.unit = policy, unit
        self.api = cluster.FakeApi(self._changed)
        self.woken: list[str] = []
        self.watch = "running"  # stopped: what happens is told later; lost: never
        self.ready = True
        self.restored = False  # put back to an older copy, and the extender's watches are still to find out
        self._unseen: list[tuple[str, str, Object]] = []
        self._processes = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """A new process: nothing in memory but what the API server says."""
        self._processes += 1
        clock = asyncio.get_running_loop().time
        identity = f"{self._processes:08x}"
        self.ledger = Ledger()
        self.metrics = Metrics(self.ledger)
        recorder = Recorder(self.api, clock=clock)
        self.announcer = Announcer(recorder, self.ledger)
        self.nodes = watches.Nodes(self.ledger, self.announcer, unit=self.unit, clock=clock)
        reach = Reach(self.nodes.by_rules.allowed, self.nodes.by_rules.open_to)
        self.life = Life(self.ledger, policy=self.policy, reach=reach)
        self.pods = watches.Pods(
            self.life, self.announcer, self.metrics, unit=self.unit, identity=identity, clock=clock
        )
        self.maps = watches.ConfigMaps(self.nodes)
        self.binder = Binder(
            self.api, self.life, self.announcer, self.metrics, unit=self.unit, identity=identity,
            nanoseconds=lambda: int(clock() * 1e9), clock=clock, connected=lambda: not self.restored,
        )  # fmt: skip
        self.verbs = Verbs(
            self.life, unit=self.unit, clock=clock,
            cannot_answer=self._cannot_answer, count_refusal=self.metrics.refused,
        )  # fmt: skip
        self.watch, self._unseen = "running", []
        self.relist()
        self._tasks = [asyncio.create_task(work) for work in (recorder.run(), self.announcer.run(reach.allowed))]

    async def stop(self) -> None:
        """kill -9: what is under way in the cluster happens, what is in memory is gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.binder.finish(600)

    def _cannot_answer(self, uid: str) -> str:
        target = self.binder.target(uid)
        return f"it is being bound to {target} right now" if target else ("" if self.ready else UNREADY)

    # The watches

    def relist(self, pods: Iterable[Object] | None = None) -> None:
        """What a reflector does after a gap it cannot bridge. `pods`: if they were read before now."""
        pods = list(self.api.pods.values() if pods is None else pods)
        self._unseen.clear()
        self.restored = False
        for kind, kept in (("nodes", self.api.nodes), ("maps", self.api.maps)):
            for item in kept.values():
                self._see(kind, "upsert", item)
        for pod in pods:
            self._see("pods", "upsert", pod)
        self.nodes.relisted(set(self.api.nodes))
        self.maps.relisted(set(self.api.maps))
        self.pods.relisted({pod["metadata"]["uid"] for pod in pods})
        self._learn()

    def set_watch(self, how: str) -> None:
        assert how in ("running", "stopped", "lost"), f"unknown watch {how!r}"
        self.watch = how
        if how == "running":
            unseen, self._unseen = self._unseen, []
            for change in unseen:
                self._see(*change)

    def _changed(self, kind: str, type: str, item: Object) -> None:
        if self.watch == "running":
            self._see(kind, type, item)
            self._learn()
        elif self.watch == "stopped":
            self._unseen.append((kind, type, item))

    def _see(self, kind: str, type: str, item: Object) -> None:
        sink = {"pods": self.pods, "nodes": self.nodes, "maps": self.maps}[kind]
        getattr(sink, type)(msgspec.json.decode(msgspec.json.encode(item), type=KINDS[kind]))

    def _learn(self) -> None:
        """What the extender does beside: policies learn when they should."""
        if self.pods.learning.mix.due():
            self.ledger.learn(self.pods.learning.mix.mixture(self.ledger, self.life.reach))
            self.pods.learning.mix.learned()

    # Time

    async def wait(self, seconds: float) -> None:
        """Lets time pass, in steps of at most a second, and does what is due."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(min(1.0, end - loop.time()))
            await self.tick()

    async def tick(self) -> None:
        now = asyncio.get_running_loop().time()
        self.ledger.expire(now)
        self.nodes.settle_contradictions()
        self.ledger.study(Budget(CALL_LOOKS))
        for pod in self.life.due(now):
            try:
                await self.api.patch_pod_annotations(pod.namespace, pod.name, pod.uid, {names.WOKEN: str(now)})
                self.life.wakeups.touched(pod.uid, now)
                self.woken.append(pod.name)
            except ApiError as error:
                if error.status == 404:
                    self.life.wakeups.gone(pod.uid)
                else:
                    self.life.wakeups.failed_to_wake(pod.uid)
        while self.pods.unsure:
            pod = self.pods.unsure.pop()
            held = self.ledger.holding(pod.uid)
            self.pods.made_sure(pod, held, await self.api.get_pod(pod.namespace, pod.name))

    # The scheduler

    def offered(self, form: str, pod: Object, nodes: list[str]) -> bytes:
        """A scheduler's request: by node name, with whole nodes, or in the spelling of old schedulers."""
        whole = {"metadata": {}, "items": [self.api.nodes[name] for name in nodes]}
        bodies: dict[str, Object] = {
            "names": {"Pod": pod, "Nodes": None, "NodeNames": nodes},
            "nodes": {"Pod": pod, "Nodes": whole, "NodeNames": None},
            "lower": {"pod": pod, "nodes": None, "nodenames": nodes},
            "lower nodes": {"pod": pod, "nodes": whole},
        }
        return json.dumps(bodies[form]).encode()

    def filter(self, form: str, pod: Object, nodes: list[str], verb: str = "filter") -> Object:
        """Asks, and checks what every answer owes a scheduler."""
        asked = getattr(self.verbs, verb)
        answer: Object = json.loads(asked(self.offered(form, copy.deepcopy(pod), nodes)))
        if answer["Error"]:
            return answer
        by_object = form.endswith("nodes")
        fits = [node["metadata"]["name"] for node in answer["Nodes"]["items"]] if by_object else answer["NodeNames"]
        assert (answer["NodeNames"] if by_object else answer["Nodes"]) is None, "answered in another form than asked"
        assert fits is not None, "a list is owed, however short"
        failed, forever = answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]
        assert not fits or not (failed or forever), "reasons are given only when nothing fits"
        said = [*fits, *failed, *forever]
        assert Counter(said) <= Counter(nodes), f"named a node twice, or one that was not offered: {said}"
        assert fits or Counter(said) == Counter(nodes), f"nodes without a word: {set(nodes) - set(said)}"
        nominated = pod["status"].get("nominatedNodeName")
        assert set(failed) <= {nominated}, "FailedNodes are tried for preemption, always in vain"
        return answer | {"fits": fits}

    def prioritize(self, form: str, pod: Object, nodes: list[str]) -> dict[str, int]:
        body = self.offered(form, copy.deepcopy(pod), nodes)
        scores = {row["Host"]: row["Score"] for row in json.loads(self.verbs.prioritize(body))}
        top = [node for node, score in scores.items() if score == max(scores.values())]
        assert len(top) <= 1, f"a tie at the top lets the scheduler take another node than the one held: {top}"
        return scores

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        args = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return await self.binder.bind(wire.read_bind(json.dumps(args).encode()))

    def unschedulable(self, pod: Object, answer: Object) -> None:
        """What kube-scheduler writes after a refusal: equal reasons counted, and nothing if nothing changed."""
        reasons = Counter((answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]).values())
        total = sum(reasons.values())
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        message = f"0/{total} nodes are available: {said}."
        before = pod["status"].get("conditions")
        objects.change(pod, {"waits": message})
        if pod["status"]["conditions"] != before:
            self.api.put_pod(pod)

    # What must be true at any instant

    def check_books(self) -> None:
        """Nothing is counted twice or lost inside the ledger."""
        for state in self.ledger.nodes():
            if state.facts is None:
                continue
            held, held_slots = [0] * len(state.facts.gpus), [0] * len(state.facts.gpus)
            for holding in state.holdings():
                assert self.ledger.holding(holding.pod.uid) is holding, f"{holding.pod.name} is held twice"
                for gpu, amount, slots in holding.charges or ():
                    held[gpu] += amount
                    held_slots[gpu] += slots
            assert all(one >= other for one, other in zip(state.used_slots, held_slots, strict=True)), state.name
            counted = f"{state.name}: {state.used} counted, {held} held"
            assert all(one >= other for one, other in zip(state.used, held, strict=True)), counted
            assert state._old_places or state.used == held, counted  # a pod that moved counts on both GPUs for a while
            self._check_supplies(state)
        for holding in self.ledger.holdings():
            assert node_state(self.ledger, holding.node).holding(holding.pod.uid) is holding, (
                f"{holding.pod.name} is nowhere"
            )

    def _check_supplies(self, state: NodeState) -> None:
        """What holdings and pods without GPUs ask is what is missing of the CPU and memory of a node."""
        uses = [use for uid, use in self.ledger.supplies._uses.items() if self.ledger.holding(uid) is None]
        asked = [(cpu, memory) for node, cpu, memory in uses if node == state.name]
        asked += [(holding.pod.cpu, holding.pod.memory) for holding in state.holdings()]
        used = self.ledger.supplies._used.get(state.name, [0, 0])
        assert used == [sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked)], state.name

    def check_granted(self) -> None:
        """What bound pods were granted, by the annotations in the cluster, is never more than there is."""
        granted: Counter[tuple[str, str]] = Counter()
        slots: Counter[tuple[str, str]] = Counter()
        for pod in self.api.pods.values():
            meta, status = pod["metadata"], pod["status"]
            if names.EXTENDER in meta["annotations"] and status["phase"] not in ("Succeeded", "Failed"):
                node, containers = pod["spec"].get("nodeName", ""), pod["spec"]["containers"]
                for at, amounts in json.loads(meta["annotations"].get(names.ALLOCATION, "{}")).items():
                    limits = containers[int(at)]["resources"].get("limits", {}) if int(at) < len(containers) else {}
                    for gpu, amount in amounts.items():
                        granted[node, gpu] += amount
                        slots[node, gpu] += names.MPS_GPU in limits
        for (node, index), amount in granted.items():
            state = self.ledger.node(node)
            if state is None or state.facts is None:
                continue
            given, most = slots[node, index], state.facts.slots
            assert given <= most, f"{node} GPU {index}: {given} of {most} slots granted"
            for gpu in state.facts.gpus:
                if str(gpu.index) == index:
                    assert amount <= gpu.total, f"{node} GPU {index}: {amount} granted of {gpu.total}"

    def free(self, node: str) -> list[int]:
        status, body = self.verbs.inspect(node)
        assert status == 200, f"no node {node}"
        (seen,) = json.loads(body)["nodes"]
        return [device["totalGPU"] - device["usedGPU"] for device in seen["devs"]]

    def held(self, uid: str) -> str | None:
        holding = self.ledger.holding(uid)
        return holding.node if holding is not None and holding.state is State.ASSUMED else None
