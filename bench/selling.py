"""`gpushare node --sell=gpus`, eight GPUs of a hundred replicas each: what kubelet waits for, without the socket."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import combinations

from bench.result import Result
from bench.yardstick import HERE
from gpushare.gpu.device import Link
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.node.nvidia.rules import devices, settings
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.node.nvidia.service import Service

GPUS, REPLICAS, ASKED = 8, 100, 4
ROUNDS = 20
CONFIG = {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": REPLICAS}]}}}


def run() -> Iterator[Result]:
    gpus = [Gpu(f"GPU-8c1f0d0e-4f1a-4f0e-9c53-0a6f5a3f7c{i:02x}", i, i, i // 4) for i in range(GPUS)]
    for name, config in ((f"{REPLICAS} replicas", CONFIG), ("whole", {})):
        made = settings.settle(config, {}, {})
        service = _service(made, gpus)
        ids = [one for gpu in gpus for one in devices.ids(gpu, made.replicas)]
        asked = messages.PreferredAllocationRequest(
            container_requests=[{"available_deviceIDs": ids, "allocation_size": ASKED}]
        ).SerializeToString()
        given = messages.AllocateRequest(container_requests=[{"devices_ids": ids[:ASKED]}]).SerializeToString()
        what = f"{GPUS} GPUs, {name}"
        yield Result(f"GetPreferredAllocation, {ASKED} of {what}", _best(service.prefer, asked), "CPU ms", 2.0)
        yield Result(f"Allocate, {ASKED} of {what}", _best(service.allocate, given), "CPU ms", 0.5)


def _service(made: Settings, gpus: list[Gpu]) -> Service:
    service = Service(made, lambda: ["/dev/nvidiactl"], lambda: "token")
    service.sell(made, gpus, [Link(one.uuid, other.uuid, 2, 10) for one, other in combinations(gpus, 2)])
    return service


def _best(ask: Callable[[bytes], Awaitable[bytes]], body: bytes) -> float:
    """Milliseconds: the best of some rounds, because others' work makes each of them dearer."""

    async def rounds() -> float:
        spent = []
        for _ in range(ROUNDS):
            HERE.look()
            before = time.process_time()
            await ask(body)
            spent.append(time.process_time() - before)
        return min(spent) * 1000

    return asyncio.run(rounds())
