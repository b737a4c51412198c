"""The node part with everything that reads what GPUs do: from a process on a GPU to the event and the page."""

import msgspec
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.sample import Pass, Process
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.node import observer
from gpushare.node.app import Node
from gpushare.node.influx.feed import Feed
from gpushare.node.usage.eviction import Evictor
from gpushare.node.usage.gpunode_writer import GpuNodeWriter
from gpushare.node.usage.model import Owner
from tests.node import world
from tests.support.wait import eventually

MIB = 1 << 20


class Busy(Simulated):
    """One process on the first GPU."""

    async def sample(self) -> Pass:
        found = await super().sample()
        first = msgspec.structs.replace(found.gpus[0], processes=(Process(7, 9000 * MIB, 50),), memory_used=9100 * MIB)
        return Pass(found.driver, (first, *found.gpus[1:]))


class Owners:
    """The process is of that container."""

    unknown = ""

    def of(self, pids: object, pods: object) -> dict[int, Owner]:
        return {7: Owner("", "c0-2026-11-15T12:00:00Z")}


@pytest.mark.parametrize("part", [Evictor, GpuNodeWriter, Feed])
async def test_a_bug_in_a_part_that_publishes_ends_nothing_else(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: type
) -> None:
    async def fails(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(part, "run", fails)
    observing = observer.Config(sample_seconds=0.02, evicts=True, influx="http://127.0.0.1:9")
    config = world.CONFIG._replace(observing=observing)
    async with client.connect(login.Access(server=server.url)) as api:
        node = Node(config, api, Simulated(world.devices(*world.SIZES)))
        async with world.at_work(node):
            await eventually(lambda: "a bug in gpushare" in caplog.text)
            await eventually(lambda: node.observer is not None and node.observer.sampler.usage is not None)
            await eventually(lambda: not node.not_ready())


@pytest.mark.parametrize("evicts", [False, True])
async def test_a_process_that_uses_too_much_is_seen_told_and_shown(server: ApiServer, evicts: bool) -> None:
    observing = observer.Config(sample_seconds=0.02, grace=0.05, evicts=evicts)
    config = world.CONFIG._replace(observing=observing)
    async with client.connect(login.Access(server=server.url)) as api:
        node = Node(config, api, Busy(world.devices(*world.SIZES)), Owners())
        async with world.at_work(node):
            await eventually(lambda: node.publisher is not None and node.publisher.done)
            world.bound(server, "web", 6000, on="GPU-0")
            world.starts(server, "web", "c0")
            await eventually(lambda: "GPUOverUse" in [reason for reason, *_ in world.warnings(server)])
            assert node.observer is not None
            (over,) = node.observer.overuse.current
            assert (over.pod, over.used, over.granted) == ("web", 9000 * MIB, 6000 * MIB)
            usage = node.observer.sampler.usage
            assert usage is not None
            assert [gpu.bus for gpu in usage.gpus] == ["00000000:01:00.0", "00000000:02:00.0"]
            assert [gpu.unattributed for gpu in usage.gpus] == [100 * MIB, 0]
            page = node.exporter.page()[0].decode()
            assert f'pod="web",container="c0",pod_uid="{over.key.pod_uid}"}} {3000 * MIB}' in page
            assert (node.observer.evictor is not None) == evicts


async def test_a_bug_in_what_publishes_ends_neither_the_node_nor_the_others(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gpushare.node.usage.gpunode_writer.GpuNodeWriter.run", broken)
    config = world.CONFIG._replace(observing=observer.Config(sample_seconds=0.02))
    async with client.connect(login.Access(server=server.url)) as api:
        node = Node(config, api, Busy(world.devices(*world.SIZES)), Owners())
        async with world.at_work(node):
            await eventually(lambda: "a bug in gpushare" in caplog.text)
            await eventually(lambda: node.observer is not None and node.observer.sampler.usage is not None)
