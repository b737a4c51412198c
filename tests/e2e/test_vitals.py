"""What GPUs do, from the driver to everybody who is told: /metrics, GPUNode, InfluxDB, `inspect` and the extender.

The driver is the stand-in for NVIDIA's library, and changes while everything runs. What it does not tell is told
nowhere, and what it told once does not look fresh when it tells nothing any more.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.e2e.harness import gpunodes, influx, sampled_nodes, timed, told
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.influx import Influx
from tests.e2e.harness.told import UNKNOWN, Gpu, Places
from tests.e2e.harness.world import World

A, B = "vital-a", "vital-b"
DEFAULT_SECONDS = 5.0  # between two passes over the driver
ON_THE_WAY = 2.0  # seconds, from a pass to the last one who is told; `gpushare inspect` alone takes one
QUICK_SECONDS = 1.0
PATIENCE = 45.0
ASKS = {"name": "train", "containers": {"main": 6000}, "direct": True, "selector": {"kubernetes.io/hostname": A}}
IDLE = Gpu(0, 0, 35, 12)
BUSY = Gpu(4000, 37, 61, 52, {"train": 3000})
BUSIER = Gpu(6500, 85, 70, 66, {"train": 5500})
SECRETIVE = Gpu(1000, None, 45, None)  # does not tell utilisation and power
OWN_COUNTS = "DCGM_FI_DEV_XID_ERRORS"  # counted by the node part, whatever the driver says


class Stage(NamedTuple):
    places: dict[str, Places]  # by node
    pids: dict[str, int]  # by pod


@contextlib.asynccontextmanager
async def _stage(world: World, sizes: Mapping[str, Mapping[int, int]], seconds: float) -> AsyncIterator[Stage]:
    """Nodes with GPUs of these sizes; on the first GPU of the first one runs a pod."""
    folder = world.cluster.work / f"vitals-{world.api.namespace}"
    folder.mkdir()
    every = f"{seconds:g}"
    words = ("--sample-seconds", every, "--influx", influx.URL, "--influx-interval", every)
    login = {"INFLUX_USER": influx.USER, "INFLUX_PASSWORD_FILE": str(influx.password_file(folder))}
    async with (
        _database(world, folder) as database,
        gpunodes.installed(world.cluster),
        world.cluster.extender(),
        world.cluster.scheduler(),
        world.kubelets(),
        sampled_nodes.started(world, folder, sizes, *words, **login) as nodes,
    ):
        await world.watch.until_bound(*await world.make_pods(ASKS), seconds=PATIENCE)
        with sampled_nodes.cgroups() as cgroups:
            pid = cgroups.process(world.watch.pods["train"]["metadata"]["uid"])
            yield Stage({name: Places(world, node, database) for name, node in nodes.items()}, {"train": pid})


@contextlib.asynccontextmanager
async def _database(world: World, folder: Path) -> AsyncIterator[Influx]:
    made = Influx(world.cluster, folder / "influxdb")
    await made.start()
    try:
        await made.make_user()
        yield made
    finally:
        await made.stop()


@timed.repeated_once
async def test_a_change_is_told_everywhere_within_two_intervals(world: World, figures: Figures) -> None:
    async with _stage(world, {A: {0: 16276}}, DEFAULT_SECONDS) as (places, pids):
        told.show(places[A].node, [BUSY], pids)
        await places[A].until([BUSY], PATIENCE)  # the GPUNode was just written: for it this is the worst moment
        told.show(places[A].node, [BUSIER], pids)
        took = await places[A].until([BUSIER], PATIENCE)
    timed.tell(
        figures, f"a change of a GPU that is sampled every {DEFAULT_SECONDS:g} s is told", _listed(took),
        in_time=max(took.values()) <= 2 * DEFAULT_SECONDS + ON_THE_WAY,
    )  # fmt: skip


async def test_what_the_driver_does_not_tell_is_told_nowhere_and_nothing_old_looks_fresh(
    world: World, figures: Figures
) -> None:
    """The driver of one node hangs, that of the other one is gone; both come back."""
    truth = {A: [BUSY], B: [IDLE, SECRETIVE]}
    async with _stage(world, {A: {0: 16276}, B: {1: 16276, 2: 8192}}, QUICK_SECONDS) as (places, pids):
        await _until_told(places, truth, pids)
        _, row, *_ = (await places[B].inspect("-o", "wide")).splitlines()
        assert row.split()[-2:] == ["1000", "-"], "of two GPUs one does not tell its utilisation"

        began = time.time()
        told.show(places[A].node, truth[A], pids, "hang=nvmlDeviceGetTemperature")
        places[B].node.mock.path.unlink()
        hanging, lost = await asyncio.gather(
            places[A].until([UNKNOWN], PATIENCE), places[B].until([UNKNOWN, UNKNOWN], PATIENCE)
        )
        why = await asyncio.gather(*(_check_silent(one, began) for one in places.values()))
        assert "the driver has not answered for " in why[0]
        assert "driver is not loaded" in why[1]

        ended = time.time()
        back = await _until_told(places, truth, pids)
        for one in places.values():
            between = f"time > {int(began + QUICK_SECONDS)}s AND time < {int(ended)}s"
            query = f"SELECT temperature FROM gpumetric WHERE node='{one.node.name}' AND {between}"
            assert await one.influx.rows(query) == [], "an old figure with a new time"
    figures.say("NVML that hangs, sampled every 1 s: figures are unknown", _listed(hanging))
    figures.say("NVML that is gone: figures are unknown", _listed(lost))
    figures.say("  what people read then", "\n    ".join(("", *why)))
    figures.say("  it works again: figures are back", _listed(back))


async def _until_told(
    places: Mapping[str, Places], truth: Mapping[str, list[Gpu]], pids: Mapping[str, int]
) -> dict[str, float]:
    """The slowest node counts."""
    for name, one in places.items():
        told.show(one.node, truth[name], pids)
    took = await asyncio.gather(*(one.until(truth[name], PATIENCE) for name, one in places.items()))
    return {place: max(each[place] for each in took) for place in took[0]}


async def _check_silent(one: Places, began: float) -> str:
    """Its age grows, everything says so, and there are no figures of the driver anywhere. What `inspect` says."""
    sampled_at, shown = await one.sampled_at(), await _sampled_column(one)
    await asyncio.sleep(2.5)
    assert await one.sampled_at() == sampled_at <= began + QUICK_SECONDS
    assert await _sampled_column(one) > shown >= 2
    names = {name for name, *_ in await one.samples()}
    assert {name for name in names if name.startswith("DCGM_")} == {OWN_COUNTS}
    assert {"gpushare_gpu_memory_granted_bytes", "gpushare_gpu_healthy"} <= names, "these do not come from the driver"
    status = await one.status()
    (condition,) = [each for each in status["conditions"] if each["type"] == "Sampled"]
    assert (condition["status"], condition["reason"]) == ("False", "DriverSilent")
    assert [status["summary"][key] for key in ("used", "utilization", "temperature", "power")] == ["-"] * 4
    assert await one.last_point("gpumetric") <= began + QUICK_SECONDS
    assert await one.last_point("multimetric") >= time.time() - 3 * QUICK_SECONDS, "the node itself is still told"
    lines = (await one.inspect("-d", "-o", "wide")).splitlines()
    (sentence,) = [line for line in lines if line.startswith(f"{one.node.name}: what its GPUs do is unknown: ")]
    _, row, *_ = (await one.inspect("-o", "wide")).splitlines()
    assert row.split()[-2:] == ["-", "-"]
    return sentence


async def _sampled_column(one: Places) -> int:
    """Seconds, as `kubectl get gn` shows them."""
    return int((await one.row()).split()[-2].removesuffix("s"))


def _listed(took: Mapping[str, float]) -> str:
    return "after " + ", ".join(f"{seconds:.1f} s by {place}" for place, seconds in took.items())
