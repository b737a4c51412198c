"""Pods of random sizes that come and go on the real node for a while; meanwhile one GPU becomes unhealthy.

Both ways of pinning are tested with it (test_direct, test_plugin). A GPU counts as healthy again only after a minute,
which is waited for anyway while pods come and go.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Iterator

from gpushare.core.facts import names
from gpushare.gpu import health
from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.node_world import NodeWorld, has_failed, is_placed
from tests.e2e.harness.world import gpus_of
from tests.support.objects import Object

LIFE = (1.0, 5.0)  # seconds
PATIENCE = 60.0
LOOKS, LOOK_SECONDS = 10, 0.5
ONSET_SECONDS = 20.0
LAST_SECONDS = 15.0  # for those that are there when no more come
OF_THE_APPLICATION, OFF_THE_BUS = 31, 79  # XIDs
STEADY = "steady"
WITHDRAWN = "requested number of devices unavailable for aliyun.com/"  # kubelet's own words


class Churn:
    """`pods`: those that come and go. `steady`: units of a pod that runs all the time, on the GPU that falls
    unhealthy."""

    def __init__(self, world: NodeWorld, *, seconds: float, at_once: int, pods: Iterator[Object], steady: int) -> None:
        self.world, self.installation = world, world.installation
        self.starts: list[float] = []  # seconds from creation to running
        self._seconds, self._at_once, self._steady = seconds, at_once, steady
        self._dice = random.Random(36)
        self._pods = pods
        self._reported = math.inf  # when the GPU fell unhealthy

    async def run(self, figures: Figures) -> None:
        await self.world.run({"name": STEADY, "containers": {"main": self._steady}})
        ends = time.monotonic() + self._seconds - LAST_SECONDS
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._make_one_unhealthy())
            for _ in range(self._at_once):
                tasks.create_task(self._come_and_go(ends))
        figures.say(
            f"{len(self.starts)} pods in {self._seconds:.0f} s on a real node of {len(self.installation.gpus)} GPUs, "
            f"pinned by {(await self.installation.published())['pin']}, {self._at_once} at once",
            f"from creation to running {distribution(self.starts)}; no GPU gave more than it has at any moment",
        )

    async def _come_and_go(self, ends: float) -> None:
        world = self.world
        while (began := time.monotonic()) < ends:
            words = next(self._pods)
            name = words["name"]
            await world.make_pods(words)
            await world.until_taken(name, seconds=self._seconds + PATIENCE)  # whole GPUs are rarely free
            if has_failed(world.watch.pods[name]):
                self._was_refused(name)
            else:
                self.starts.append(time.monotonic() - began)
                await asyncio.sleep(self._dice.uniform(*LIFE))
                await world.check_pod(name)
            await world.delete(name)

    def _was_refused(self, name: str) -> None:
        """Allowed for a pod that was starting when its GPU became unhealthy, if no other GPU fits. kubelet may know
        first that units were withdrawn, and refuse it without asking."""
        status = self.world.watch.pods[name]["status"]
        assert "gpushare: " in status["message"] or WITHDRAWN in status["message"], f"{name}: {status}"
        assert 0 < time.monotonic() - self._reported < ONSET_SECONDS, f"{name}: {status}"

    async def _make_one_unhealthy(self) -> None:
        """A program's own fault is no illness. A GPU off the bus keeps what is held there and gets nothing new, until
        it has been healthy for a while."""
        installation, (unhealthy,) = self.installation, gpus_of(self.world.watch.pods[STEADY])
        healthy = (unhealthy + 1) % len(installation.gpus)
        self._reported = time.monotonic()
        installation.report(OF_THE_APPLICATION, healthy)
        installation.report(OFF_THE_BUS, unhealthy)
        await installation.until("a GPU is unhealthy", lambda: installation.is_unhealthy(unhealthy))
        assert not await installation.is_unhealthy(healthy)
        left = sum(installation.gpus) - installation.gpus[unhealthy] + self._steady
        await installation.until(f"the node offers {left}", lambda: installation.offers(left))
        async with asyncio.timeout(health.RECOVERY_SECONDS + PATIENCE):
            await self._nobody_comes(unhealthy)
        await installation.until_published()
        await self.world.check_pod(STEADY)

    async def _nobody_comes(self, unhealthy: int) -> None:
        """Until it is healthy again."""
        before, looks = self._on(unhealthy), 0
        while True:
            there = self._on(unhealthy)
            if not await self.installation.is_unhealthy(unhealthy):
                break
            assert there <= before, f"{there - before} came to GPU {unhealthy} while it was unhealthy"
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)
        assert looks > LOOKS, "it was healthy again before anybody could have come"

    def _on(self, gpu: int) -> set[str]:
        """The pods whose annotations say that they are on it."""
        return {name for name, pod in self.world.watch.pods.items() if is_placed(pod) and gpu in gpus_of(pod)}


def mixed(largest: int) -> Iterator[Object]:
    """Of twenty pods one wants a whole GPU, two are split, two have two containers, two an init container. `largest`:
    units of a container."""
    dice = random.Random(20)
    for number in itertools.count():
        words: Object = {"name": f"pod-{number:04}", "containers": {"main": dice.randint(1, largest)}}
        match number % 20:
            case 3:
                words["containers"] = {"main": {"count": 1}}
            case 7 | 17:
                words |= {"containers": {"main": 2 * dice.randint(1, largest // 2)}, "split": 2}
            case 9 | 19:
                words["containers"]["helper"] = dice.randint(1, largest)
            case 5 | 15:
                words["init"] = {"fetch": dice.randint(1, largest)}
        yield words


def of_all_kinds(largest: int) -> Iterator[Object]:
    """The same with every fifth pod a whole GPU by NVIDIA's name, MPS shares with and without memory of their own, and
    pods that mix kinds. The env of nvidia.com/gpu is written here: the policy leaves that name alone."""
    whole = {"nvidia": 1, "env": f"{names.VISIBLE_PREFIX}0"}
    for number, words in enumerate(mixed(largest)):
        match number % 10:
            case 1:
                words["containers"] = {"main": whole}
            case 2 | 6:
                words["containers"] = {"main": {"mps": 1}}
            case 4:
                words |= {"containers": {"main": {"mps": 2}}, "annotations": {names.SLOT_MEMORY[0]: "900Mi"}}
            case 8:
                words["containers"] = {"main": {"mps": 1}, "helper": largest // 2, "third": {"mps": 1}}
            case 9:
                words["containers"] = {"main": whole, "helper": {"mps": 1}, "third": largest // 2}
        yield words
