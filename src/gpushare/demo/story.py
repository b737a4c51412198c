"""The story in ten steps, one line each. What a line says is read from the cluster, never assumed.

Each step shows one thing: tight packing, several containers, several GPUs, a whole GPU, a device plugin, a node that
sells by count, a burst, a refusal with its reason, a wake-up, and a crash in the middle.
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence

from gpushare.core.explain import verdict
from gpushare.core.explain.report import Explanation
from gpushare.core.facts import names, request
from gpushare.core.facts.model import Pin
from gpushare.demo import env_check, objects
from gpushare.demo.programs import Extender
from gpushare.demo.terminal import Terminal
from gpushare.demo.world import World
from gpushare.view import sold

BURST = 40
KILLED_AFTER = 12  # of the second burst
READING = 2.5  # seconds to read a step before the next one
STEPS = 10


class Story:
    def __init__(self, world: World, extender: Extender, terminal: Terminal) -> None:
        self._world, self._extender, self._terminal = world, extender, terminal
        self._step = 0
        self.expected = 0  # pods that were to be placed
        self.staying: set[str] = set()  # names of those that must have a node at the end

    async def tell(self, steps: int = STEPS) -> None:
        """The first steps, by default all."""
        whole = (
            self._web, self._vision, self._train, self._solo, self._plugin, self._sold,
            self._burst, self._waits, self._wakes, self._crash,
        )  # fmt: skip
        for step in whole[:steps]:
            await step()

    async def _web(self) -> None:
        await self._world.create(objects.web(3, 3500))
        await self._placed("web-", 3)
        where = _where(self._world.places(self._world.bound("web-")))
        await self._report("Deployment web: 3 replicas x 3500 MiB", f"all 3 on one GPU: {where}")

    async def _vision(self) -> None:
        two = [objects.container(name, names.GPU_MEM, units) for name, units in (("main", 14000), ("helper", 12000))]
        await self._world.create(objects.pod("vision", *two))
        await self._placed("vision", 1)
        await self._report("Pod vision: containers of 14000 + 12000 MiB", self._where_is("vision"))

    async def _train(self) -> None:
        one = objects.container("main", names.GPU_MEM, 40000)
        await self._world.create(objects.pod("train", one, annotations={names.GPU_COUNT: "2"}))
        await self._placed("train", 1)
        ((node, shares),) = self._world.places(self._world.bound("train")).items()
        each = " and ".join(sorted({str(units) for _, units in shares}))
        await self._report("Pod train: 40000 MiB over 2 GPUs", f"{node}, {each} MiB on each")

    async def _solo(self) -> None:
        await self._world.create(objects.pod("solo", objects.container("main", names.GPU_COUNT, 1)))
        await self._placed("solo", 1)
        await self._report("Pod solo: a whole GPU", f"{self._where_is('solo')}, nobody else on it")

    async def _plugin(self) -> None:
        """The admission policy does not change this pod, so it can only run where kubelet asks a device plugin."""
        two = [objects.container(name, names.GPU_MEM, units) for name, units in (("main", 8000), ("helper", 6000))]
        await self._world.create(objects.pod("chat", *two, namespace=objects.BY_PLUGIN))
        await self._placed("chat", 1)
        await self._report(f"Pod {objects.BY_PLUGIN}/chat: 8000 + 6000 MiB", self._where_is("chat"), read=False)
        (node,) = self._world.places(self._world.bound("chat"))
        main, helper = (self._env(objects.BY_PLUGIN, "chat", name)[names.ALIYUN_IDX] for name in ("main", "helper"))
        has = f"main has GPU {main}, helper GPU {helper}"
        self._terminal.say(f"     {node} pins by device plugin: kubelet asked it, {has}")
        await self._terminal.pause(READING)

    async def _sold(self) -> None:
        """gpushare's scheduling has no part in it: kube-scheduler counts what the node sells."""
        one = objects.container("main", names.NVIDIA_GPU, 1)
        await self._world.create(objects.pod("cuda", one, namespace=objects.BY_COUNT))
        await self._world.until_running("cuda", 1)
        self.staying.add("cuda")
        self.expected += 1  # the extender lets it pass and binds it, too
        (use,) = (use for use in sold.uses(self._world.look()) if use.buyers)
        has = f"{use.node}, {use.used} of {use.total}, {use.sharing}"
        await self._report(f"Pod {objects.BY_COUNT}/cuda: 1 {use.resource}", has)

    async def _burst(self) -> None:
        await self._world.create(objects.batch("batch", BURST, 1000))
        took = await self._placed("batch-", BURST)
        await self._report(f"Job batch: {BURST} pods x 1000 MiB, all at once", f"{BURST} placed in {took:.1f} s")
        if not self._terminal.animated:
            self._terminal.say("", *self._world.table(), "")

    async def _waits(self) -> None:
        rooms = self._world.look().ledger.rooms()
        free = sum(sum(room.free) for room in rooms if room.facts.pin is Pin.DIRECT)  # where it may go
        await self._world.create(objects.pod("llm", objects.container("main", names.GPU_MEM, 7000)))
        self.expected += 1
        await self._world.until("llm refused", lambda: self._refused("llm"))
        await self._report(f"Pod llm: 7000 MiB; {free} are free, in pieces", "waits", read=False)
        explanation = self._explained("llm")
        closest, smaller = explanation.nodes[0], next(way.units for way in explanation.ways if way.way == "shrink")
        gpu = closest.gpus[0]
        self._terminal.say(
            f"     why? {explanation.message}; closest {closest.name} GPU {gpu.index}, {gpu.short} short;",
            f"     it would fit if one of {gpu.pods} pods there ended, or if it asked {smaller} or less",
        )
        await self._terminal.pause(2 * READING)

    async def _wakes(self) -> None:
        """A pod ends on the GPU where llm nearly fits."""
        closest = self._explained("llm").nodes[0]
        node, gpu = closest.name, closest.gpus[0].index
        ending = next(
            pod.metadata.name
            for pod in self._world.bound("batch-")
            if (gpu, 1000) in self._world.places([pod]).get(node, [])
        )
        self._world.cluster.kubelet.finish("default", ending)
        took = await self._world.until_bound("llm", 1)
        there = "there" if self._where_is("llm") == f"{node} GPU {gpu}" else f"on {self._where_is('llm')}"
        await self._world.until_running("llm", 1)
        await self._report(f"{ending} ends", f"llm starts {there} after {took:.2f} s")

    async def _crash(self) -> None:
        world = self._world
        for pod in world.bound("batch-"):
            world.cluster.kubelet.finish("default", pod.metadata.name)
            self.staying.discard(pod.metadata.name)
        await world.until("the batch ended", lambda: all(p.status.phase != "Running" for p in world.bound("batch-")))
        before = self._running()
        await world.create(objects.batch("second", BURST, 800))
        await world.until(f"{BURST} pods second-", lambda: len(world.pods("second-")) == BURST)
        self.staying |= {"llm", *(pod.metadata.name for pod in world.pods("second-"))}
        await world.until_bound("second-", KILLED_AFTER)
        await self._extender.end(signal.SIGKILL)
        await asyncio.sleep(0.2)  # requests that were sent have arrived by then
        placed = len(world.bound("second-"))
        await self._report("The batch ends, 40 pods x 800 MiB come, and:", "kill -9 the extender", read=False)
        same = "notice nothing" if self._running() >= before else "HAVE CHANGED"
        self._terminal.say(f"     {placed} placed, {BURST - placed} waiting; the {len(before)} running pods {same}")
        await self._terminal.pause(READING)
        started = time.monotonic()
        await self._extender.start()
        took = time.monotonic() - started
        await world.until_bound("second-", BURST)
        self.expected += BURST
        await world.until_running("second-", BURST)
        rest = f"rebuilt from the cluster: {BURST - placed} placed"
        self._terminal.say(f"     extender back in {took:.1f} s, {rest}, none twice")
        await self._terminal.pause(READING)

    async def _placed(self, prefix: str, count: int) -> float:
        took = await self._world.until_bound(prefix, count)
        self.expected += count
        await self._world.until_running(prefix, count)
        self.staying |= {pod.metadata.name for pod in self._world.bound(prefix)}
        return took

    async def _report(self, what: str, outcome: str, *, read: bool = True) -> None:
        self._step += 1
        self._terminal.say(f"{self._step:<3}{what:<46}{outcome}")
        if read:
            await self._terminal.pause(READING)

    def _running(self) -> set[str]:
        return {pod.metadata.uid for pod in self._world.pods("") if pod.status.phase == "Running"}

    def _env(self, namespace: str, pod: str, container: str) -> dict[str, str]:
        return env_check.environment(self._world.cluster.kubelet.logs(namespace, pod, container))

    def _refused(self, name: str) -> bool:
        conditions = [c for pod in self._world.pods(name) for c in pod.status.conditions or ()]
        return any(c.type == "PodScheduled" and c.status == "False" for c in conditions)

    def _explained(self, name: str) -> Explanation:
        (pod,) = self._world.pods(name)
        return verdict.explain(self._world.look().ledger, request.facts(pod, None))

    def _where_is(self, name: str) -> str:
        return _where(self._world.places(self._world.bound(name)))


def _where(places: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    """`gpu-a GPU 0 and GPU 1`."""
    return "; ".join(
        f"{node} GPU " + " and GPU ".join(str(gpu) for gpu in sorted({gpu for gpu, _ in shares}))
        for node, shares in places.items()
    )
