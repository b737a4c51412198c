"""What kube-scheduler does around an extender, in little: filter, prioritize, bind, back off, wait to be woken.

Pods come from the embedded API server without delay, as from an informer that is always up to date; everything else
is HTTP to the extender. A refused pod gets its condition and then waits for one thing only, an update of ours: what
kube-scheduler would notice by itself is left out, so that a lost wake-up is a pod that waits for ever. Every reply is
checked against the API server at once; what is not true is collected in `lies`.
"""

import asyncio
import random
import re
import time
from collections import Counter
from typing import Any

import aiohttp

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import embedded_objects
from tests.support.embedded_objects import Object
from tests.support.extender_process import Extender

BACKOFF = (0.02, 0.3)
LATE = 10.0  # seconds after which the extender has heard of a changed node: watches are silent, machines busy
NO_ROOM = re.compile(r"^\S+: (no |node\(s\) )")
SAYS = {  # every sentence a bind may fail with, and whether the pod must be unbound by this call
    "no room": NO_ROOM,
    "already bound": re.compile(r" is already bound to (?P<node>\S+)$"),
    "gone": re.compile(r" is gone$|^pods \"\S+\" not found$"),
    "being deleted": re.compile(r" is being deleted$"),
    "in progress": re.compile(r" is still in progress$"),
    "not synced": re.compile(r"^gpushare has not read the cluster yet: "),
    "stale": re.compile(r"^gpushare has not heard from the API server for "),
    "cut off": re.compile(r"^nothing was written: gpushare has no connection to the API server at the moment$"),
    "taken": re.compile(r": other pods have taken that GPU memory in the meantime$"),
    "cannot be read": re.compile(r" cannot be read: "),
    "does not answer": re.compile(r"^the API server does not answer: "),
    "refused": re.compile(r"^the fault proxy answers \d+$|please try again$"),
}


class Scheduler:
    def __init__(self, server: ApiServer, extender: Extender, dice: random.Random) -> None:
        self.lies: list[str] = []
        self.counts: Counter[str] = Counter()
        self.binding = 0  # calls under way
        self.generation = 0  # of the extender and of all nodes: after a change, holds may be gone
        self._changed_at: dict[str, float] = {}  # by node
        self.waiting: dict[str, str] = {}  # name -> why
        self._server, self._extender, self._dice = server, extender, dice
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._delays: dict[str, float] = {}
        self._later: set[asyncio.Task[None]] = set()

    def add(self, name: str) -> None:
        self._queue.put_nowait(name)

    def node_changes(self, node: str) -> None:
        """What is held there may be lost, as soon as the extender hears of it."""
        self.generation += 1
        self._changed_at[node] = time.monotonic()

    def _settled(self, node: str) -> bool:
        return time.monotonic() - self._changed_at.get(node, -LATE) >= LATE

    def changed(self, before: Object | None, after: Object | None) -> None:
        """An informer's update."""
        if before is None or after is None:
            return
        name = after["metadata"]["name"]
        if name in self.waiting and _woken(before) != _woken(after):
            self.counts["woken"] += 1
            del self.waiting[name]
            self.add(name)

    async def work(self) -> None:
        while True:
            name = await self._queue.get()
            try:
                await self._schedule(name)
            except (aiohttp.ClientError, TimeoutError, OSError):
                self.counts["no answer"] += 1
                self._again(name)

    async def _schedule(self, name: str) -> None:
        pod = embedded_objects.find(self._server, name)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        generation = self.generation
        nodes = list(self._server.store.shelf("nodes").keys)
        self._dice.shuffle(nodes)
        fits = await self._filter(name, pod, nodes)
        if not fits:
            return
        node, held = fits[0], True
        if len(fits) > 1:
            scores = await self._extender.prioritize(pod, *fits)
            node, held = self._choose(name, fits, scores)
        await self._bind(name, pod, node, held and generation == self.generation, generation)

    async def _filter(self, name: str, pod: Object, nodes: list[str]) -> list[str]:
        self.counts["filter"] += 1
        answer = await self._extender.filter(pod, *nodes)
        if answer["Error"]:
            self.counts["filter says Error"] += 1
            self._again(name)
            return []
        fits: list[str] = answer["NodeNames"]
        refused = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        if not set(fits) <= set(nodes) or (not fits and set(refused) != set(nodes)):
            self.lies.append(f"{name}: filter answers {fits} and refuses {sorted(refused)}")
        if not fits:
            self._wait(name, pod, "; ".join(sorted(set(refused.values()))))
        return fits

    def _wait(self, name: str, pod: Object, why: str) -> None:
        self.counts["refused"] += 1
        now = embedded_objects.find(self._server, name)
        if now is None:
            return
        if _woken(now) != _woken(pod):
            self.add(name)  # woken before we had the answer
            return
        self.waiting[name] = why
        embedded_objects.set_status(self._server, name, conditions=[embedded_objects.UNSCHEDULABLE | {"message": why}])

    def _choose(self, name: str, fits: list[str], scores: list[Object]) -> tuple[str, bool]:
        """The best node, which is held; now and then another one, as when in-tree scores weigh more."""
        hosts = [score["Host"] for score in scores]
        if not set(hosts) <= set(fits):
            self.lies.append(f"{name}: prioritize names {hosts} of {fits}")
        if not scores or self._dice.random() < 0.1:
            return self._dice.choice(fits), False
        best = max(scores, key=lambda score: int(score["Score"]))
        return best["Host"], True

    async def _bind(self, name: str, pod: Object, node: str, held: bool, generation: int) -> None:
        self.binding += 1
        self.counts["bind"] += 1
        began = time.time_ns()
        try:
            error = await self._extender.bind(pod, node)
        finally:
            self.binding -= 1
        now = embedded_objects.find(self._server, name)
        if now is not None and now["metadata"]["uid"] != pod["metadata"]["uid"]:
            now = None
        if error:
            kind = next((kind for kind, pattern in SAYS.items() if pattern.search(error)), "")
            self.counts[f"bind says: {kind or error}"] += 1
            held = held and generation == self.generation and self._settled(node)
            if why := self._lie(kind, error, now, began, held):
                self.lies.append(f"{name}: bind to {node} says {error!r}, but {why}")
            self._again(name)
        else:
            if now is not None and now["spec"].get("nodeName") != node:
                self.lies.append(f"{name}: bind to {node} succeeds, but it is on {now['spec'].get('nodeName')!r}")
            self._delays.pop(name, None)
            if self._dice.random() < 0.05:
                await self._repeat(name, pod, node)

    def _lie(self, kind: str, error: str, now: Object | None, began: int, held: bool) -> str:
        if not kind:
            return "nobody knows this sentence"
        if kind == "gone":
            return "" if now is None else "it is there"
        if now is None:
            return ""
        bound_to = now["spec"].get("nodeName", "")
        if kind == "already bound":
            found = SAYS[kind].search(error)
            return "" if found and found["node"] == bound_to else f"it is on {bound_to!r}"
        if kind == "being deleted":
            return "" if now["metadata"].get("deletionTimestamp") else "nobody deletes it"
        if kind == "no room" and held:
            return "that node was held for it"
        stamp = int((now["metadata"].get("annotations") or {}).get(names.ALIYUN_ASSUME_TIME, "0"))
        if bound_to and stamp >= began and kind != "in progress":
            return f"this very call bound it to {bound_to}"
        return ""

    async def _repeat(self, name: str, pod: Object, node: str) -> None:
        """A scheduler that did not get the first answer asks again."""
        again = await self._extender.bind(pod, node)
        self.counts["repeated"] += 1
        gone = embedded_objects.find(self._server, name) is None
        if again and not gone and not any(SAYS[kind].search(again) for kind in ("not synced", "stale", "gone")):
            self.lies.append(f"{name}: bound to {node}, but asked again bind says {again!r}")

    def _again(self, name: str) -> None:
        delay = self._delays[name] = min(self._delays.get(name, BACKOFF[0]) * 2, BACKOFF[1])
        task = asyncio.create_task(self._add_later(name, delay))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _add_later(self, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        self.add(name)


def _woken(pod: Object) -> Any:
    return (pod["metadata"].get("annotations") or {}).get(names.WOKEN)
