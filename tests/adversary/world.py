"""One life: a cluster, an extender, a scheduler, an accountant, and the deeds that can happen to them.

A deed is a word and what it is given, plain data, so that a life can be told again, shortened and printed. One that
makes no sense where it stands (the pod is gone) does nothing. Between deeds time passes in steps; after each step the
accountant and the judge look.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from gpushare.core.facts import names
from tests.adversary import making
from tests.adversary.accountant import Accountant, Wrong
from tests.adversary.clock import Loop
from tests.adversary.judge import Judge
from tests.adversary.process import Process, TooDear, virtual_time
from tests.adversary.scheduler import ENDED, Scheduler, is_bound, is_waiting
from tests.adversary.server import Copy, Object, Server, annotate

STEP, LONG_STEP = 0.5, 1.0  # seconds between two looks, while things happen and in the end
DEAREST = (
    1.0  # CPU seconds that nobody may keep the extender from everybody else, on a machine as fast as the usual one
)
KUBELET = 1.0  # seconds from a binding to running containers, and from a deletion to their end
RESTORE_SECONDS = 4.0  # the API server's start after a restore
KNOWS_SECONDS = 15.0  # after that an extender has noticed a restore
SETTLE_SECONDS, QUIET_SECONDS = 600.0, 14.0
GUARDED = (names.ALLOCATION, names.EXTENDER, names.WOKEN, names.VISIBLE_PREFIX, "ALIYUN_COM_GPU")

SEEN_BY_ALL = {"labels", "taints", "cordon", "capacity", "unit", "gpus", "lost", "unhealthy", "slots", "whole"}

Deed = tuple[str, Any]


class Story(NamedTuple):
    """All that a life is made of. `cluster`: policy, unit, verb, deaf, patient, guard."""

    cluster: Object
    deeds: list[Deed]


def tell(story: Story) -> "Counts":
    """Lives it from its beginning to its end, in virtual time. Raises `Wrong` when a promise is broken."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            return runner.run(_tell(story))
    finally:
        logging.disable(before)


class Counts(NamedTuple):
    deeds: int
    checks: int
    bindings: int


async def _tell(story: Story) -> Counts:
    loop = asyncio.get_running_loop()
    with virtual_time(loop.time):
        world = World(story.cluster)
        try:
            for word, given in story.deeds:
                await world.do(word, given)
            await world.settle()
        except TooDear as error:
            raise Wrong("too dear", str(error)) from None
        except Wrong:
            raise
        except Exception as error:  # whatever the extender raises, some scheduler would get it
            raise Wrong("raised", repr(error)) from error
        finally:
            await world.end()
    assert isinstance(loop, Loop)
    if loop.longest > DEAREST:
        raise Wrong("too dear", f"nobody else had a turn for {loop.longest:.2f} CPU seconds")
    return Counts(len(story.deeds), world.accountant.checks, world.server.binds)


class World:
    def __init__(self, cluster: Object) -> None:
        self.cluster, clock = cluster, asyncio.get_running_loop().time
        self.server = Server(clock)
        self.process = self._new_process()
        self.scheduler = Scheduler(
            self.server, lambda: self.process,
            verb=cluster.get("verb", "choose"), deaf=cluster.get("deaf", False), patient=cluster.get("patient", False),
        )  # fmt: skip
        self.accountant = Accountant(self.server)
        self.judge = Judge(self.accountant, self.scheduler, cluster.get("unit"))
        self.server.on_bind = self.accountant.bound
        self.nodes: dict[str, Object] = {}  # as they were told, in the words of `node`
        self._copies: list[Copy] = []
        self._starts: dict[str, float] = {}  # by uid: when its containers run
        self._ends: dict[str, float] = {}  # by key: when kubelet is done with a deleted pod
        self._calm_since = 0.0
        self._looked_at = ((0, 0), False)  # at which moment, and whether the extender knew it

    def _new_process(self) -> Process:
        return Process(self.server, self.cluster.get("policy", "binpack"), self.cluster.get("unit"))

    async def do(self, word: str, given: Any) -> None:
        deed: Callable[[Any], Awaitable[None] | None] = getattr(self, f"do_{word}")
        waited = deed(given)
        if waited is not None:
            await waited
        await self.step(0.0)

    async def end(self) -> None:
        await self.process.kill()
        for task in self.scheduler.bindings:
            task.cancel()
        await asyncio.gather(*self.scheduler.bindings, return_exceptions=True)

    # Time

    async def step(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._kubelet()
        self.scheduler.turn()
        if self.scheduler.bindings or self._looked_at[0] != self.server.moment:
            for _ in range(8):  # what was just written reaches whoever watches without delay
                await asyncio.sleep(0)
        self._look()

    async def do_wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            await self.step(STEP)

    def _look(self) -> None:
        failure = self.process.failure()
        if failure:
            raise Wrong("ended", failure)
        for error in self.scheduler.failures:
            raise error
        now, informed = self.server.clock(), self.informed()
        before, self._looked_at = self._looked_at, (self.server.moment, informed)
        if not informed:
            self._calm_since = now
        elif before != self._looked_at:  # else nothing has happened since
            for name in self.server.nodes:
                self.accountant.check_free(name, self.process.free(name), settled=False)
        self.judge.look(calm=informed and now - self._calm_since > STEP)

    def informed(self) -> bool:
        """Whether the extender has been told all there is, and may act on it."""
        ready = not self.process.extender.not_ready() and self.server.clock() >= self.accountant.excused
        return ready and self.server.has_told()

    def is_binding(self) -> bool:
        """Whether a binding is in progress: one whose answer was lost may be for minutes."""
        target = self.process.extender.binder.target
        return any(target(pod["metadata"]["uid"]) for pod in self.server.pods.values())

    async def settle(self) -> None:
        """Everything works and nothing happens any more: who fits must be placed, and the books must be right."""
        self.server.faults.clear()
        self.server.repeats = self.server.down = self.scheduler.stopped = False
        for kind in list(self.server.lag):
            self.server.set_lag(kind, 0.0)
        end, quiet, before = self.server.clock() + SETTLE_SECONDS, 0.0, ((0, 0), 0)
        while quiet < QUIET_SECONDS and self.server.clock() < end:
            await self.step(LONG_STEP)
            busy = self.scheduler.assumed or self.is_binding() or not self.informed()
            after = (self.server.moment, len(self.scheduler.queue))
            quiet = 0.0 if busy or after != before else quiet + LONG_STEP
            before = after
        self.judge.check_placed()
        for name in self.server.nodes:
            self.accountant.check_free(name, self.process.free(name), settled=True)

    # kubelet and garbage collection

    def _kubelet(self) -> None:
        now = self.server.clock()
        for key, pod in list(self.server.pods.items()) if not self.server.down else ():
            uid, status = pod["metadata"]["uid"], pod["status"]
            if pod["metadata"].get("deletionTimestamp"):
                if not is_bound(pod) or now >= self._ends.setdefault(key, now + KUBELET):
                    self._ends.pop(key, None)
                    self.server.drop("pods", key)
            elif is_bound(pod) and status["phase"] == "Pending" and now >= self._starts.setdefault(uid, now + KUBELET):
                status["phase"] = "Running"
                if names.ALLOCATION in pod["metadata"]["annotations"]:
                    annotate(pod, {names.ALIYUN_ASSIGNED: "true"})
                self.server.put("pods", pod)

    # Deeds: pods

    def do_pod(self, given: Object) -> None:
        """A pod is created, perhaps with its node already written into it."""
        made = making.pod(given)
        if f"default/{given['name']}" not in self.server.pods:
            self._tamper(made, made["metadata"]["annotations"])
            self.server.put("pods", made)

    def do_annotate(self, given: Object) -> None:
        """A tenant writes annotations, null to remove one; guarded keys only where nobody guards them."""
        pod = self.server.pods.get(f"default/{given['pod']}")
        if pod is not None:
            self._tamper(pod, given.get("annotations", {}))
            annotate(pod, given.get("annotations", {}))
            pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | given.get("labels", {})
            self.server.put("pods", pod)

    def _tamper(self, pod: Object, annotations: Object) -> None:
        if any(key.startswith(GUARDED) for key in annotations):
            self.accountant.tampered.add(pod["metadata"]["uid"])

    def do_delete(self, name: str) -> None:
        pod = self.server.pods.get(f"default/{name}")
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T09:00:00Z"
            self.server.put("pods", pod)

    def do_gone(self, name: str) -> None:
        """Deleted by force: it is there no more, without any other sign."""
        self.server.drop("pods", f"default/{name}")

    def do_finish(self, given: Object) -> None:
        pod = self.server.pods.get(f"default/{given['pod']}")
        if pod is not None and is_bound(pod) and pod["status"]["phase"] not in ENDED:
            pod["status"]["phase"] = given["phase"]
            self.server.put("pods", pod)

    # Deeds: nodes

    def do_node(self, given: Object) -> None:
        """Nodes appear, or change in what is named: gpus (MiB each), unit, pin, state, labels, taints, cordon,
        unhealthy, lost, capacity, nvidia, slots, whole."""
        for name, changes in given.items():
            before = self.nodes.get(name, {})
            if "gpus" not in before | changes:
                continue  # nobody has told of it yet
            self.nodes[name] = {k: v for k, v in (before | changes).items() if v is not None}
            seen_by_all = set(changes) & SEEN_BY_ALL
            self.server.put("nodes", making.node(name, self.nodes[name]), by="" if seen_by_all else "annotation")

    def do_no_node(self, name: str) -> None:
        self.server.drop("nodes", name)
        self.nodes.pop(name, None)

    def do_configmap(self, given: Object) -> None:
        """Lists unhealthy GPUs of nodes by index; null: the ConfigMap goes."""
        for node, listed in given.items():
            name = f"{names.UNHEALTHY_PREFIX}{node}"
            if listed is None:
                self.server.drop("configmaps", f"kube-system/{name}")
            else:
                meta = {"name": name, "namespace": "kube-system"}
                self.server.put("configmaps", {"metadata": meta, "data": {names.UNHEALTHY_KEY: listed}})

    # Deeds: what stands between the extender and the cluster

    def do_lag(self, given: dict[str, float]) -> None:
        for kind, seconds in given.items():
            self.server.set_lag(kind, seconds)

    def do_cut(self, given: Object) -> None:
        """Watches end; with `compact` what they missed is gone, so that they must list."""
        if given.get("compact"):
            self.server.compact()
        self.server.cut(given.get("kind", ""))

    def do_repeat(self, on: bool) -> None:
        self.server.repeats = on

    def do_faults(self, faults: list[str]) -> None:
        self.server.faults.extend(faults)

    async def do_down(self, seconds: float) -> None:
        """The API server is away."""
        self.server.cut()
        self.server.down = True
        await self.do_wait(seconds)
        self.server.down = False

    def do_snapshot(self, _: object) -> None:
        self._copies.append(self.server.copy())

    async def do_restore(self, given: Object) -> None:
        """etcd is put back to the last copy; then the API server is started, and a new scheduler, as the guides say."""
        if not self._copies or not self.informed():
            return
        # A backup is minutes old at best. Only so can anybody tell that revisions went back.
        self.server.others_write()
        await self.do_wait(1)
        self.server.restore(self._copies[-1], bump=given["bump"])
        self.accountant.excused = self.server.clock() + RESTORE_SECONDS + KNOWS_SECONDS
        self.scheduler.stopped = True
        self._starts.clear()
        await self.do_wait(RESTORE_SECONDS)
        self.server.down = False
        await self.do_wait(KNOWS_SECONDS)
        self.scheduler.stopped = False
        self.scheduler.restart()

    # Deeds: the extender and whoever calls it

    async def do_restart(self, _: object) -> None:
        await self.process.kill()
        self.process = self._new_process()
        for place in self.scheduler.queue.values():
            place.offered = False  # as far as the new process knows
        self.scheduler.requeue_all()

    def do_ask(self, name: str) -> None:
        """Some scheduler asks and does nothing about the answer."""
        pod = self.server.pods.get(f"default/{name}")
        if pod is not None and is_waiting(pod) and pod["metadata"]["uid"] not in self.scheduler.assumed:
            nodes, reasons = self.scheduler.feasible(pod)
            node = self.scheduler.ask(pod, nodes, reasons) if nodes else ""
            if node:
                self.scheduler.assumed[pod["metadata"]["uid"]] = (node, f"default/{name}", self.server.clock())

    async def do_bind(self, given: Object) -> None:
        """Somebody has the extender bind a pod to a node of his own choice."""
        pod = self.server.pods.get(f"default/{given['pod']}")
        if pod is not None and given["node"] in self.server.nodes:
            await self.process.bind(pod, given["node"])
