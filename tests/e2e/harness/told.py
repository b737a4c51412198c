"""What the GPUs of a node do, as each place tells it where people and programs look.

All of them tell it in one form, so that it can be compared with what the driver was made to say.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
from prometheus_client import parser

from tests.e2e.harness import command_line
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.gpunodes import PATH
from tests.e2e.harness.influx import Influx
from tests.e2e.harness.sampled_nodes import SampledNode
from tests.e2e.harness.world import World
from tests.support.nvml import state
from tests.support.objects import Object

MIB = state.MIB
DCGM = {"used": "FB_USED", "utilization": "GPU_UTIL", "temperature": "GPU_TEMP", "power": "POWER_USAGE"}
POD_USE = "gpushare_container_memory_used_bytes"
STAMP = "gpushare_usage_timestamp_seconds"
IN_JSON = {"used": "usedMiB", "utilization": "utilization", "temperature": "temperature", "power": "powerWatts"}


class Gpu(NamedTuple):
    """Memory in MiB, power in W. None: it is not told. `pods`: what each of them uses, where that is told."""

    used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: int | None = None
    pods: Mapping[str, int] = {}


UNKNOWN = Gpu()


def show(node: SampledNode, gpus: Sequence[Gpu], pids: Mapping[str, int], *rules: str) -> None:
    """The driver says this from now on. `pids`: of pods."""
    cards = [
        state.using(
            number, size, *(state.process(pids[pod], mib, 10) for pod, mib in gpu.pods.items()),
            used=(gpu.used or 0) * MIB, util=None if gpu.utilization is None else f"{gpu.utilization} 20",
            temp=gpu.temperature, power=None if gpu.power is None else gpu.power * 1000,
        )
        for (number, size), gpu in zip(node.sizes.items(), gpus, strict=True)
    ]  # fmt: skip
    node.mock.show(*cards, rules=rules)


class Places:
    """That tell what the GPUs of this node do."""

    def __init__(self, world: World, node: SampledNode, influx: Influx) -> None:
        self.node, self.influx = node, influx
        self._world = world
        self._uuids = [state.uuid(number) for number in node.sizes]
        self._config = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
        self.all: dict[str, Callable[[], Awaitable[list[Gpu]]]] = {
            "/metrics": self._in_metrics,
            "GPUNode": self._in_gpunode,
            "InfluxDB": self._in_influx,
            "inspect": self._in_inspect,
            "extender": self._in_extender,
        }

    async def until(self, gpus: Sequence[Gpu], seconds: float) -> dict[str, float]:
        """Until every place tells exactly this. By place, after how many seconds somebody had the answer."""
        began = time.monotonic()

        async def told(place: str) -> float:
            # The extender does not read what containers do.
            wanted = [gpu._replace(pods={}) for gpu in gpus] if place == "extender" else list(gpus)
            while (found := await self.all[place]()) != wanted:
                assert time.monotonic() - began < seconds, f"{self.node.name}, {place}: {found}, not {wanted}"
                await asyncio.sleep(0.2)
            return time.monotonic() - began

        return dict(zip(self.all, await asyncio.gather(*map(told, self.all)), strict=True))

    async def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Of the page of metrics: name, labels, value."""
        url = f"http://127.0.0.1:{self.node.probes}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            text = await response.text()
        families = parser.text_string_to_metric_families(text)
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    async def sampled_at(self) -> float:
        """As the page of metrics says."""
        (at,) = [value for name, _, value in await self.samples() if name == STAMP]
        return at

    async def status(self) -> Object:
        """Of the GPUNode."""
        listed = (await self._world.cluster.get(PATH))["items"]
        return next((dict(one.get("status", {})) for one in listed if one["metadata"]["name"] == self.node.name), {})

    async def row(self) -> str:
        """Of `kubectl get gn`."""
        return (await self._world.cluster.kubectl("get", "gn", self.node.name, "--no-headers")).strip()

    async def inspect(self, *words: str) -> str:
        code, out, error = await command_line.piped(self._config, "gpushare", "inspect", self.node.name, *words)
        assert (code, error) == (0, ""), error
        return out

    async def last_point(self, measurement: str) -> int:
        """When this node wrote it last, in seconds since 1970. 0: never."""
        field = "Index" if measurement == "gpumetric" else "Count"
        rows = await self.influx.rows(f"SELECT last({field}) FROM {measurement} WHERE node='{self.node.name}'")
        return int(rows[0][0]) if rows else 0

    async def _in_metrics(self) -> list[Gpu]:
        told = await self.samples()

        def figure(uuid: str, name: str) -> int | None:
            found = [value for sample, labels, value in told if sample == name and labels.get("UUID") == uuid]
            return round(found[0]) if found else None

        def pods(uuid: str) -> dict[str, int]:
            return {of["pod"]: int(b) // MIB for name, of, b in told if name == POD_USE and of["UUID"] == uuid}

        return [
            Gpu(**{key: figure(uuid, f"DCGM_FI_DEV_{name}") for key, name in DCGM.items()}, pods=pods(uuid))
            for uuid in self._uuids
        ]

    async def _in_gpunode(self) -> list[Gpu]:
        by_uuid = {gpu["uuid"]: gpu for gpu in (await self.status()).get("gpus", ())}
        return [_from_json(by_uuid[uuid], "containers", "pod") for uuid in self._uuids if uuid in by_uuid]

    async def _in_influx(self) -> list[Gpu]:
        """At the last moment at which this node has written anything: older points are not what it says now."""
        return [await self._points(uuid, await self.last_point("multimetric")) for uuid in self._uuids]

    async def _points(self, uuid: str, at: int) -> Gpu:
        where = f"WHERE UUID='{uuid}' AND time = {at}s"
        fields = 'SELECT "memory(used)", utilization, temperature, "Power" FROM gpumetric'
        rows = await self.influx.rows(f"{fields} {where}")
        processes = await self.influx.rows(f"SELECT gpu_mps_memory, pod FROM gpumap {where}")
        if not rows:
            return UNKNOWN
        _, used, utilization, temperature, power = rows[0]
        return Gpu(
            used // MIB, utilization, temperature, None if power is None else power // 1000,
            {pod: memory // MIB for _, memory, pod in processes if pod},
        )  # fmt: skip

    async def _in_inspect(self) -> list[Gpu]:
        return _devices(json.loads(await self.inspect("-o", "json")))

    async def _in_extender(self) -> list[Gpu]:
        return _devices(await self._world.ask(f"inspect/{self.node.name}"))


def _devices(answer: Object) -> list[Gpu]:
    return [_from_json(device, "pods", "name") for node in answer["nodes"] for device in node["devs"]]


def _from_json(gpu: Mapping[str, Any], users: str, name: str) -> Gpu:
    """`users`: the key of those who use it; `name`: of their pod."""
    pods = {user[name]: user["usedMiB"] for user in gpu.get(users, ()) if "usedMiB" in user}
    return Gpu(**{key: gpu.get(said) for key, said in IN_JSON.items()}, pods=pods)
