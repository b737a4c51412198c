"""`gpushare collector` beside a node part that does not sample: it measures what that one sells, and writes no node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu import absence
from gpushare.gpu.device import NoDriver
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.node import observer, part
from gpushare.node.app import Node
from gpushare.node.collector.app import Collector, Config
from gpushare.node.usage import gpunode, gpunode_writer
from gpushare.obs import errors
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.usage.test_observing import Busy, Owners
from tests.support import embedded_objects
from tests.support.wait import PATIENCE, eventually, until

SAMPLING = observer.Config(sample_seconds=0.02, grace=0.05)
CONFIG = Config(world.NAME, port=0, observing=SAMPLING)
QUIET = world.CONFIG._replace(observing=observer.Config(sample_seconds=0.0))
WAITS = "node gpu-a has no usable annotation gpushare.io/gpus: waiting for gpushare node, which writes it"
ABSENT = NoDriver("libnvidia-ml.so.1 not found", "no driver", "load it", errors.CLUSTER_NOT_ASKED)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(gpunode_writer, "SHORTEST", 0.05)
    monkeypatch.setattr(gpunode_writer, "FIRST_WITHIN", 0.0)
    caplog.set_level("INFO")


@contextlib.asynccontextmanager
async def collecting(server: ApiServer, gpus: Simulated, config: Config = CONFIG) -> AsyncIterator[Collector]:
    async with client.connect(login.Access(server=server.url)) as api:
        made = Collector(config, api, gpus, Owners())
        async with world.at_work(made):
            yield made


@contextlib.asynccontextmanager
async def selling(server: ApiServer, gpus: Simulated) -> AsyncIterator[Node]:
    async with world.running(server.url, gpus, QUIET) as node:
        await eventually(lambda: not node.not_ready())
        yield node


def gpunode_of(server: ApiServer) -> world.Object:
    """Its status; empty: there is none."""
    entry = server.store.get("gpunodes.gpushare.io", world.NAME)
    return dict(entry.obj().get("status") or {}) if entry is not None else {}


def annotate(server: ApiServer, text: str | None) -> None:
    world.patch(server, {"metadata": {"annotations": {names.NODE_GPUS: text}}})


def page(made: part.Part) -> str:
    return made.exporter.page()[0].decode()


async def test_it_measures_what_another_process_sells(server: ApiServer) -> None:
    gpus = Busy(world.devices(*world.SIZES))
    async with selling(server, gpus) as node:
        pod = world.bound(server, "web", 6000, on="GPU-0")
        world.starts(server, "web", "c0")
        await eventually(lambda: 'gpushare_node_writes_total{of="pods"} 1.0' in page(node))
        before = len(server.audit)
        async with collecting(server, gpus) as made:
            await eventually(lambda: not made.not_ready())
            await until(server, lambda: (gpunode_of(server).get("gpus") or [{}])[0].get("overUsers"))
            first = gpunode_of(server)["gpus"][0]
            assert (first["grantedMiB"], first["usedMiB"], first["shares"]) == (6000, 9100, 1)
            assert first["overUsers"] == [pod["metadata"]["uid"]]
            assert [(reason, name) for reason, name, _ in world.warnings(server)] == [("GPUOverUse", "web")]
            assert f'gpushare_gpu_memory_granted_bytes{{node="gpu-a",gpu="0",UUID="GPU-0"}} {6000 << 20}\n' in page(
                made
            )
            assert 'gpushare_node_writes_total{of="gpunode"}' in page(made)
        assert node.observer is None
        assert "gpushare_gpu_" not in page(node)
        assert 'gpushare_watch_age_seconds{of="driver"}' in page(node)  # the rest of its page stays
        assert {write.path.partition(world.NAME)[0] for write in server.audit[before:]} == {
            "/apis/gpushare.io/v1alpha1/gpunodes",  # made once
            "/apis/gpushare.io/v1alpha1/gpunodes/",
            "/api/v1/namespaces/default/events",
        }


async def test_without_the_annotation_it_waits_and_says_so(
    server: ApiServer, gpus: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    async with collecting(server, gpus) as made:
        await eventually(lambda: made.not_ready() == WAITS)
        assert made.dead() == ""
        async with selling(server, gpus):
            await eventually(lambda: "gpushare_gpu_healthy{" in page(made))
            assert made.not_ready() == ""
        told = (world.shown(server)["metadata"].get("annotations") or {})[names.NODE_GPUS]
        for nothing in (None, "", "nonsense", '{"v": 1, "gpus": []}', told.replace('"v":1', '"v":2')):
            annotate(server, nothing)
            await eventually(lambda: made.not_ready() == WAITS)
            await eventually(lambda: "gpushare_gpu_healthy{" not in page(made))
            annotate(server, told)
            await eventually(lambda: "gpushare_gpu_healthy{" in page(made))
        assert made.not_ready() == ""
    assert WAITS in caplog.messages


async def test_a_node_of_aliyuns_plugin_has_nothing_for_it(server: ApiServer, gpus: Simulated) -> None:
    world.patch(server, {"status": {"capacity": {names.GPU_MEM: "27454", names.GPU_COUNT: "2"}}}, "status")
    async with collecting(server, gpus) as made:
        await eventually(lambda: made.not_ready() == WAITS)


async def test_gpus_of_the_annotation_that_the_driver_does_not_show_are_unknown(
    server: ApiServer, gpus: Simulated
) -> None:
    async with selling(server, gpus):
        pass
    async with collecting(server, Simulated(world.devices(world.SIZES[0]))):
        await until(server, lambda: len(gpunode_of(server).get("gpus") or ()) == 2)
        shown = gpunode_of(server)["gpus"]
        assert ["usedMiB" in gpu for gpu in shown] == [True, False]
        assert [gpu["totalMiB"] for gpu in shown] == list(world.SIZES)


async def test_a_node_that_comes_later_or_goes_is_waited_for(server: ApiServer, gpus: Simulated) -> None:
    async with selling(server, gpus):
        pass
    shown = world.shown(server)
    async with collecting(server, gpus) as made:
        await eventually(lambda: not made.not_ready())
        server.registry.delete(embedded_objects.NODES, "", world.NAME, {})
        await eventually(lambda: made.not_ready() == WAITS)
        back = world.node() | {"metadata": {"name": world.NAME, "annotations": shown["metadata"]["annotations"]}}
        embedded_objects.create(server, back)
        await eventually(lambda: not made.not_ready())


async def test_two_who_sample_are_told_so_on_their_node(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpushare.core.facts.vitals.HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(gpunode, "timestamp", str)  # of whole seconds otherwise
    gpus = Busy(world.devices(*world.SIZES))
    config = world.CONFIG._replace(observing=SAMPLING)
    async with world.running(server.url, gpus, config) as node, collecting(server, gpus) as made:
        await eventually(lambda: (observer.SAMPLED_TWICE, world.NAME, gpunode_writer.TWICE) in world.warnings(server))
        await eventually(lambda: not node.not_ready() and not made.not_ready())  # both go on


# A node without a driver


async def _refused(server: ApiServer, gpus: Simulated, config: Config) -> Exception:
    async with client.connect(login.Access(server=server.url)) as api:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(PATIENCE):
                await Collector(config, api, gpus).run()
    return part.first(caught.value)


async def test_no_driver_ends_it_unless_it_was_told_otherwise(server: ApiServer, gpus: Simulated) -> None:
    gpus.fail(ABSENT)
    assert await _refused(server, gpus, CONFIG) is ABSENT


async def test_a_broken_driver_ends_it_in_any_case(server: ApiServer, gpus: Simulated) -> None:
    broken = errors.not_asked("the NVIDIA driver is not loaded", "nvmlInit: driver not loaded", "nvidia-smi")
    gpus.fail(broken)
    assert await _refused(server, gpus, CONFIG._replace(fail_on_init_error=False)) is broken


@pytest.mark.parametrize("sells", [True, False])
async def test_on_a_node_without_a_driver_it_is_ready_asks_nobody_and_begins_when_there_is_one(
    server: ApiServer,
    gpus: Simulated,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sells: bool,
) -> None:
    monkeypatch.setattr(absence, "ABSENT_SECONDS", 0.05)
    monkeypatch.setattr(part, "STUCK_SECONDS", 0.2)
    looks: list[UserError] = []
    gpus.fail(ABSENT)
    devices = gpus.devices

    async def counted() -> object:
        looks.append(ABSENT)
        return await devices()

    monkeypatch.setattr(gpus, "devices", counted)
    async with client.connect(login.Access(server="http://127.0.0.1:9")) as nowhere:
        made = (
            Node(world.CONFIG._replace(fail_on_init_error=False), nowhere, gpus)
            if sells
            else Collector(CONFIG._replace(fail_on_init_error=False), nowhere, gpus)
        )
        async with world.at_work(made):
            await eventually(lambda: len(looks) > 8)  # longer than a driver may be stuck
            assert (made.not_ready(), made.dead()) == ("", "")
            assert "gpushare_watch_age_seconds{" not in page(made)  # nobody is waited for
            assert caplog.messages == [absence.NO_DRIVER]
            gpus.fail(None)
            await eventually(lambda: "starting: waiting for" in made.not_ready())
