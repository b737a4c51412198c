"""Pods of random sizes that come and go on the real node, for a while, and a GPU that falls sick among them.

Both ways of pinning are proved with it (test_direct, test_plugin). A GPU that was sick counts as well again only after
a minute, so that this costs no time of its own.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Iterator

from gpushare.gpu import health
from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.kubelet_world import Tenants, has_failed, is_placed
from tests.e2e.harness.world import gpus_of
from tests.support.objects import Object

LIFE = (1.0, 5.0)  # seconds
PATIENCE = 60.0
LOOKS, LOOK_SECONDS = 10, 0.5
ONSET_SECONDS = 20.0
LAST_SECONDS = 15.0  # for those that are there when no more come
OF_THE_APPLICATION, OFF_THE_BUS = 31, 79  # XIDs
STEADY = "steady"


class Churn:
    """`steady`: units of a pod that runs all the time, on the GPU that falls sick. `largest`: of a container."""

    def __init__(self, world: Tenants, *, seconds: float, at_once: int, largest: int, steady: int) -> None:
        self.world, self.stage = world, world.stage
        self.starts: list[float] = []  # seconds from creation to running
        self._seconds, self._at_once, self._steady = seconds, at_once, steady
        self._dice = random.Random(36)
        self._pods = mixed(self._dice, largest)
        self._reported = math.inf  # when the GPU fell sick

    async def run(self, figures: Figures) -> None:
        await self.world.run({"name": STEADY, "containers": {"main": self._steady}})
        ends = time.monotonic() + self._seconds - LAST_SECONDS
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fall_sick())
            for _ in range(self._at_once):
                tasks.create_task(self._come_and_go(ends))
        figures.say(
            f"{len(self.starts)} pods in {self._seconds:.0f} s on a real node of {len(self.stage.gpus)} GPUs, "
            f"pinned by {(await self.stage.published())['pin']}, {self._at_once} at once",
            f"from creation to running {distribution(self.starts)}; no GPU gave more than it has at any moment",
        )

    async def _come_and_go(self, ends: float) -> None:
        world = self.world
        while (began := time.monotonic()) < ends:
            words = next(self._pods)
            name = words["name"]
            await world.make_pods(words)
            await world.until_taken(name, seconds=self._seconds + PATIENCE)  # whole GPUs are rarely free
            if has_failed(world.sight.pods[name]):
                self._was_refused(name)
            else:
                self.starts.append(time.monotonic() - began)
                await asyncio.sleep(self._dice.uniform(*LIFE))
                await world.check_pod(name)
            await world.delete(name)

    def _was_refused(self, name: str) -> None:
        """That may happen to pods which were on their way when their GPU fell sick, if there is no other for them."""
        status = self.world.sight.pods[name]["status"]
        assert "gpushare: " in status["message"], f"{name}: {status}"
        assert 0 < time.monotonic() - self._reported < ONSET_SECONDS, f"{name}: {status}"

    async def _fall_sick(self) -> None:
        """A program's own fault is no illness. A GPU off the bus keeps what is held there and gets nothing new, until
        it has been well for a while."""
        stage, (sick,) = self.stage, gpus_of(self.world.sight.pods[STEADY])
        well = (sick + 1) % len(stage.gpus)
        self._reported = time.monotonic()
        stage.report(OF_THE_APPLICATION, well)
        stage.report(OFF_THE_BUS, sick)
        await stage.until("a GPU is sick", lambda: stage.is_sick(sick))
        assert not await stage.is_sick(well)
        left = sum(stage.gpus) - stage.gpus[sick] + self._steady
        await stage.until(f"the node offers {left}", lambda: stage.offers(left))
        async with asyncio.timeout(health.RECOVERY_SECONDS + PATIENCE):
            await self._nobody_comes(sick)
        await stage.until_published()
        await self.world.check_pod(STEADY)

    async def _nobody_comes(self, sick: int) -> None:
        """Until it is well again."""
        before, looks = self._on(sick), 0
        while True:
            there = self._on(sick)
            if not await self.stage.is_sick(sick):
                break
            assert there <= before, f"{there - before} came to GPU {sick} while it was sick"
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)
        assert looks > LOOKS, "it was well again before anybody could have come"

    def _on(self, gpu: int) -> set[str]:
        """The pods whose annotations say that they are on it."""
        return {name for name, pod in self.world.sight.pods.items() if is_placed(pod) and gpu in gpus_of(pod)}


def mixed(dice: random.Random, largest: int) -> Iterator[Object]:
    """Of twenty pods one wants a whole GPU, two are split, two have two containers, two an init container."""
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
