"""A model of kube-scheduler: its queue with back-off, what moves a pod in it, its own checks, and its calls.

It sees the cluster without delay, which is the worst for an extender that sees it late. A pod it cannot place waits
until it is touched, or until something in the cluster changes; with `deaf` it overlooks what the real one may overlook
when its watch is a moment ahead of the extender's: memory that came free, and a node's annotation.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.adversary import intree
from tests.adversary.process import Process
from tests.adversary.server import DELETED, Object, Server

BACKOFF = (1.0, 10.0)  # seconds, doubling
ASSUME_SECONDS = 31.0  # how long an answer without a binding may be counted
ENDED = ("Succeeded", "Failed")


@dataclass
class Place:
    """Where a pod stands in the queue. `waits`: only an event brings it back."""

    ready: float
    waits: bool = False
    attempts: int = 0
    refused_at: float = 0.0
    offered: bool = False  # the extender has been asked about it


class Scheduler:
    def __init__(self, server: Server, process: Callable[[], Process], *, verb: str, deaf: bool, patient: bool) -> None:
        self.server, self._process = server, process
        self.verb, self.deaf, self.patient = verb, deaf, patient
        self.queue: dict[str, Place] = {}  # by key
        self.assumed: dict[str, tuple[str, str, float]] = {}  # uid -> node, key, since when
        self.bindings: set[asyncio.Task[None]] = set()
        self.failures: list[Exception] = []  # of calls that raised: they should never
        self.stopped = False
        server.listeners.append(self._heard)

    # Events

    def _heard(self, kind: str, type: str, item: Object, by: str) -> None:
        if kind == "pods":
            self._heard_pod(type, item, by)
        elif kind == "nodes" and not (self.deaf and by == "annotation"):
            self.requeue_all()

    def _heard_pod(self, type: str, pod: Object, by: str) -> None:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if type == DELETED or is_bound(pod) or pod["metadata"].get("deletionTimestamp"):
            self.queue.pop(key, None)
            if (type == DELETED or pod["status"].get("phase") in ENDED) and not self.deaf:
                self.requeue_all()
        elif key not in self.queue:
            self.queue[key] = Place(self.server.clock())
        elif by != "scheduler":
            self._requeue(self.queue[key])

    def requeue_all(self) -> None:
        for place in self.queue.values():
            self._requeue(place)

    def _requeue(self, place: Place) -> None:
        if place.waits:
            place.waits = False
            place.ready = place.refused_at + self._delay(place) if self.patient else self.server.clock()

    def restart(self) -> None:
        """A new process: it lists, and everything that is not bound is in its queue."""
        self.queue = {key: Place(self.server.clock()) for key, pod in self.server.pods.items() if is_waiting(pod)}
        self.assumed.clear()

    # Cycles

    def turn(self) -> None:
        """One cycle for each pod whose time has come, the most important first, then the oldest."""
        now = self.server.clock()
        for uid, (_, _, since) in list(self.assumed.items()):
            if now - since > ASSUME_SECONDS:
                del self.assumed[uid]
        if self.stopped or self.server.down:
            return
        due = [key for key, place in self.queue.items() if not place.waits and place.ready <= now]
        for key in sorted(due, key=self._turn_of):
            pod = self.server.pods.get(key)
            if pod is not None and key in self.queue and pod["metadata"]["uid"] not in self.assumed:
                self._cycle(key, pod)

    def _turn_of(self, key: str) -> tuple[int, str, str]:
        pod = self.server.pods[key]
        return (-pod["spec"].get("priority", 0), pod["metadata"].get("creationTimestamp", ""), key)

    def _cycle(self, key: str, pod: Object) -> None:
        place = self.queue[key]
        place.attempts += 1
        nodes, reasons = self.feasible(pod)
        if nodes:
            place.offered = True
            chosen = self.ask(pod, nodes, reasons)
            if chosen is None:
                place.ready = self.server.clock() + self._delay(place)
                return
            if chosen:
                self._bind(key, pod, chosen)
                return
        place.waits, place.refused_at = True, self.server.clock()
        self._tell_refused(pod, reasons)

    def feasible(self, pod: Object) -> tuple[list[str], Counter[str]]:
        """The nodes that pass the scheduler's own checks, and why the others do not."""
        nodes, reasons = [], Counter[str]()
        for name, node in self.server.nodes.items():
            why = intree.kept_off(pod, node) or intree.short_of(pod, node, self.on_node(name, pod))
            if why:
                reasons[why] += 1
            else:
                nodes.append(name)
        return nodes, reasons

    def on_node(self, name: str, but: Object) -> list[Object]:
        """Whoever counts on a node in the scheduler's own sums."""
        assumed = {key for node, key, _ in self.assumed.values() if node == name}
        return [
            pod for key, pod in self.server.pods.items()
            if (pod["spec"].get("nodeName") == name or key in assumed)
            and pod is not but and pod["status"].get("phase") not in ENDED
        ]  # fmt: skip

    def ask(self, pod: Object, nodes: list[str], reasons: Counter[str]) -> str | None:
        """The node to bind to; nothing if it is refused; None if it is to be tried again by itself."""
        process, question = self._process(), {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        answer = process.ask(self.verb, question)
        if answer["Error"]:
            return None
        fits = answer["NodeNames"]
        assert set(fits) <= set(nodes), f"answered {fits}, asked about {nodes}"
        if not fits:
            reasons.update((answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]).values())
            return ""
        if len(fits) > 1:
            scores = {row["Host"]: row["Score"] for row in process.ask("prioritize", {**question, "NodeNames": fits})}
            return str(max(fits, key=lambda node: (scores.get(node, 0), node)))
        return str(fits[0])

    def _tell_refused(self, pod: Object, reasons: Counter[str]) -> None:
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        message = f"0/{len(self.server.nodes)} nodes are available: {said}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        if pod["status"].get("conditions") != [condition]:
            pod["status"]["conditions"] = [condition]
            self.server.put("pods", pod, by="scheduler")

    # Bindings

    def _bind(self, key: str, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        self.assumed[uid] = (node, key, self.server.clock())
        task = asyncio.create_task(self._bound(key, pod, node))
        self.bindings.add(task)
        task.add_done_callback(self.bindings.discard)

    async def _bound(self, key: str, pod: Object, node: str) -> None:
        try:
            error = await self._process().bind(pod, node)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the life ends with it
            self.failures.append(failure)
            return
        self.assumed.pop(pod["metadata"]["uid"], None)
        place = self.queue.get(key)
        if error and place is not None:
            place.ready, place.waits = self.server.clock() + self._delay(place), False

    def _delay(self, place: Place) -> float:
        first, longest = BACKOFF
        return min(first * 2.0 ** min(max(place.attempts - 1, 0), 8), longest)


def is_bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_waiting(pod: Object) -> bool:
    return not is_bound(pod) and not pod["metadata"].get("deletionTimestamp")
