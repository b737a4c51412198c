"""Labels of a node are written the way that was asked for, and never in a hurry."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from gpushare.core.facts import objects
from gpushare.kube import reflector
from gpushare.kube.labels import writer
from gpushare.kube.labels.writer import Identity, Way, Writer
from tests.support.label_api import NAMESPACE, NODE, LabelApi
from tests.support.tasks import beside
from tests.support.wait import eventually

MANAGER = "gpushare-test"
FEATURE = f"{MANAGER}-{NODE}"
WANTED = {"nvidia.com/gpu.count": "2"}


def shown(api: LabelApi) -> objects.Node:
    return msgspec.convert(api.node, objects.Node)


@contextlib.asynccontextmanager
async def writing(api: LabelApi, way: Way) -> AsyncIterator[Writer]:
    made = Writer(api, Identity(NODE, MANAGER, NAMESPACE, "pod-1"), way)
    made.see(shown(api))
    made.want(WANTED)
    async with contextlib.AsyncExitStack() as running:
        for work in (made.run(), made.watch.run() if made.watch is not None else asyncio.sleep(0)):
            await running.enter_async_context(beside(work))
        yield made


async def test_labels_are_written_to_the_node_also_where_nfd_runs() -> None:
    api = LabelApi(nfd=True)
    api.worker(runs=True)
    async with writing(api, "labels") as made:
        await eventually(lambda: made.done)
        assert made.watch is None
    assert api.labels == WANTED


async def test_a_node_feature_is_made_also_where_no_worker_runs() -> None:
    api = LabelApi(nfd=True)
    async with writing(api, "nodefeature") as made:
        await eventually(lambda: made.done)
        await eventually(lambda: api.feature(FEATURE) == WANTED)
        made.want({"nvidia.com/gpu.count": "1"})
        await eventually(lambda: api.feature(FEATURE) == {"nvidia.com/gpu.count": "1"})
    assert api.labels == {}


async def test_a_cluster_that_cannot_take_a_node_feature_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector, "MISSING_DELAY", 0.01)
    monkeypatch.setattr(writer, "PAUSE", 0.01)
    api = LabelApi()
    async with writing(api, "nodefeature") as made:
        await eventually(lambda: "404" in made.failure)
        assert not made.done
        api.nfd = True
        await eventually(lambda: api.feature(FEATURE) == WANTED)
        await eventually(lambda: made.done and not made.failure)


async def test_a_node_feature_that_was_changed_or_deleted_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PAUSE", 0.01)
    api = LabelApi(nfd=True)
    async with writing(api, "nodefeature"):
        found = await eventually(lambda: api.features.get(f"{NAMESPACE}/{FEATURE}"))
        api._feature({**found, "spec": {"labels": {}}}, there=True)
        await eventually(lambda: api.feature(FEATURE) == WANTED)
        api._feature(found, there=False)
        await eventually(lambda: api.feature(FEATURE) == WANTED)


async def test_there_is_a_pause_after_each_write() -> None:
    """Another program may remove the labels each time."""
    api, pauses, go_on = LabelApi(), list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await go_on.wait()

    made = Writer(api, Identity(NODE, MANAGER), "labels", sleep=sleep)
    made.see(shown(api))
    made.want(WANTED)
    async with beside(made.run()):
        await eventually(lambda: pauses == [writer.PAUSE])
        api.label("nvidia.com/gpu.count", None)
        for _ in range(10):
            made.see(shown(api))
            await asyncio.sleep(0)
        assert len(api.sent) == 1
        go_on.set()
        await eventually(lambda: api.labels == WANTED)
        assert len(api.sent) == 2


async def test_a_node_that_is_not_known_yet_is_waited_for() -> None:
    api = LabelApi()
    made = Writer(api, Identity(NODE, MANAGER), "labels")
    made.want(WANTED)
    async with beside(made.run()):
        await asyncio.sleep(0)
        assert api.sent == []
        made.see(shown(api))
        await eventually(lambda: made.done)
    assert api.labels == WANTED
