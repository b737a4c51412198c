"""What happens while the demo stays up, so that there is something to look at.

Pods wait for different reasons, one uses more than it asked for, small tasks come and end, and from time to time a GPU
fails and recovers. All of it is made up, as the GPUs are.
"""

import asyncio
import itertools
from collections.abc import Mapping

import msgspec

from gpushare.core.admission import pinning
from gpushare.core.facts import names
from gpushare.demo import objects
from gpushare.demo.world import World
from gpushare.devcluster.nodes import gpu_uuid
from gpushare.gpu.simulated import Simulated

TEAM = "ml"  # a namespace
WAITING = {"llm-70b": 30_000, "llm-400b": 90_000}  # MiB: one fits no GPU now, the other never
ELSEWHERE = "picky"  # it wants a node with a label that none has
TASK_MIB, TASKS = 500, 3  # each, and how many run at a time
TASK_SECONDS = 20.0
FAILING, FAULT = ("gpu-d", 1), "XID 79: GPU has fallen off the bus (simulated)"
FAILS_EVERY, FAILS_FOR = 120.0, 40.0  # seconds


async def begin(world: World) -> None:
    """The pods that stay."""
    await world.create(objects.namespace(TEAM, dict(pinning.NAMESPACES)))
    for name, amount in WAITING.items():
        await world.create(objects.pod(name, objects.container("main", names.GPU_MEM, amount), namespace=TEAM))
    greedy = objects.container("main", names.GPU_MEM, objects.GREEDY_MIB)
    await world.create(objects.pod(objects.GREEDY, greedy, namespace=TEAM))
    picky = objects.pod(ELSEWHERE, objects.container("main", names.GPU_MEM, 1000), namespace=TEAM)
    picky["spec"]["nodeSelector"] = {"gpu": "h100"}
    await world.create(picky)


async def go_on(world: World, gpus: Mapping[str, Simulated]) -> None:
    """Until it is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_tasks(world))
        tasks.create_task(_failures(gpus[FAILING[0]], gpu_uuid(*FAILING)))


async def _tasks(world: World) -> None:
    """The oldest ends when a new one comes."""
    for number in itertools.count(1):
        task = objects.pod(f"task-{number}", objects.container("main", names.GPU_MEM, TASK_MIB), namespace=TEAM)
        await world.create(task)
        if number > TASKS:
            world.cluster.kubelet.finish(TEAM, f"task-{number - TASKS}")
            await world.delete_pod(TEAM, f"task-{number - TASKS}")
        await asyncio.sleep(TASK_SECONDS)


async def _failures(gpus: Simulated, uuid: str) -> None:
    while True:
        await asyncio.sleep(FAILS_EVERY - FAILS_FOR)
        (well,) = (device for device in await gpus.devices() if device.uuid == uuid)
        gpus.put(msgspec.structs.replace(well, fault=FAULT))
        await asyncio.sleep(FAILS_FOR)
        gpus.put(well)
