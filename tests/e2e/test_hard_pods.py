"""A pod that is hard to place costs the others no time: real kube-scheduler, 60 nodes of 8 GPUs."""

import random
import time
from typing import Any

import pytest

from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.world import World

NODES, OTHERS = 60, 6
LATEST = 5.0  # seconds; it was more than a minute when such a pod could stop everybody


def _just_do_not_pack() -> dict[str, Any]:
    """33 containers of about 3,900 MiB: four to a GPU, and one is left over."""
    dice = random.Random(7)
    return {"containers": {f"c{i}": 3_850 + dice.randint(-100, 100) for i in range(33)}}


HARD: dict[str, tuple[str, dict[str, Any]]] = {
    "an init container that fits no GPU": (
        "direct",
        {"init": {"load": 16_500}, "containers": {f"c{i}": 900 + i for i in range(4)}},
    ),
    "33 containers that just do not pack": ("plugin", _just_do_not_pack()),
}


@pytest.mark.alone
@pytest.mark.parametrize("name", HARD)
async def test_other_pods_do_not_wait_for_one_that_is_hard_to_place(world: World, figures: Figures, name: str) -> None:
    pin, hard = HARD[name]
    direct = pin == "direct"
    different = [{"gpus": [15_900 + 7 * i + number for i in range(8)], "pin": pin} for number in range(NODES)]
    await world.make_various_nodes(different)
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.make_pods({"name": "hard", "direct": direct, **hard})
        await world.watch.until_refused("hard", seconds=60)
        waits, healthy = [], []
        for i in range(OTHERS):
            begun = time.monotonic()
            (other,) = await world.make_pods({"name": f"other-{i}", "direct": direct, "containers": {"main": 100}})
            await world.watch.until_bound(other, seconds=90)
            waits.append(world.watch.bound_at[other] - begun)
            begun = time.monotonic()
            await world.metrics()
            healthy.append(time.monotonic() - begun)
    figures.say(f"{name}: others are bound", distribution(waits))
    figures.say(f"{name}: the extender's metrics page answers", distribution(healthy))
    assert max(waits) < LATEST, waits
    assert max(healthy) < LATEST, healthy
