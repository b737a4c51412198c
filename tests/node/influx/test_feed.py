"""When points are made, and what the running component tells about it."""

from typing import cast

import pytest
from prometheus_client import exposition

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.sample import Process, Sample
from gpushare.gpu.simulated import Simulated
from gpushare.kube.client import Api
from gpushare.node.influx.feed import Feed
from gpushare.node.metrics import Metrics
from gpushare.node.observer import Config as ObserverConfig
from gpushare.node.usage.model import GpuUse, Usage
from tests.node.influx.test_writer import served
from tests.node.world import CONFIG, NAME, running
from tests.support.wait import eventually

SAMPLE = Sample("GPU-a", 0, processes=(Process(41, 5),))
GPU = GpuUse(0, "GPU-a", "Tesla T4", 9, 0, sample=SAMPLE)
POINTS = 4  # the node twice, the GPU, its process


def test_points_are_made_once_an_interval_whatever_the_samples() -> None:
    times = iter((1000.0, 1005.0, 1010.0, 1015.1, 1020.1, 1029.9, 1031.0, 1032.0, 1033.0))
    made = Feed("http://x", 10.0, cast(Api, None), "/proc", environment={}, now=lambda: next(times))

    def seen(at: int) -> int:
        made.see(Usage("node-1", (GPU,), sampled_at=at))
        return made.writer.waiting // POINTS

    assert [seen(at) for at in range(6)] == [1, 1, 2, 2, 3, 3]
    made.interval.seconds = 1.0
    assert [seen(at) for at in range(6, 9)] == [4, 5, 6]


def test_what_the_driver_said_is_written_once_and_not_again_while_it_is_silent() -> None:
    """It would have the time of the new point, and look fresh."""
    times = iter((1000.0, 1005.0, 1010.0, 1015.0))
    made = Feed("http://x", 5.0, cast(Api, None), "/proc", environment={}, now=lambda: next(times))

    def seen(at: int) -> int:
        before = made.writer.waiting
        made.see(Usage("node-1", (GPU,), sampled_at=at))
        return made.writer.waiting - before

    of_the_node = 2
    assert [seen(at) for at in (1000, 1000, 1000, 1014)] == [POINTS, of_the_node, of_the_node, POINTS]


async def test_the_running_component_writes_its_gpus_and_says_how_it_goes(
    server: ApiServer, gpus: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFLUX_USER", "keti")
    monkeypatch.setenv("INFLUX_PASSWORD", "hunter2-secret")
    async with served() as influx:
        observing = ObserverConfig(sample_seconds=0.01, influx=influx.url, influx_seconds=0.01)
        async with running(server.url, gpus, CONFIG._replace(observing=observing)) as node:
            expected = {b"multimetric", b"nodemetric", b"gpumetric"}  # the last one: once the driver answered
            await eventually(lambda: expected <= {line.partition(b",")[0] for line in influx.lines})
            page = exposition.generate_latest(Metrics(node.sight).registry).decode()
        assert all(f"node={NAME}".encode() in line for line in influx.lines)
        assert 'gpushare_influx_points_total{outcome="dropped"} 0.0' in page
        assert "gpushare_influx_buffered_points" in page
        assert "hunter2" not in str(observing), "the configuration is logged"


async def test_a_component_without_influxdb_says_nothing_about_it(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await eventually(lambda: node.observer)
        assert "influx" not in exposition.generate_latest(Metrics(node.sight).registry).decode()
