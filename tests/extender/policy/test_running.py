"""A running extender and policy ConfigMaps: live edits, pods that ask for no GPU, and doing without."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpushare.core.facts.scoring import configmaps
from gpushare.core.facts.scoring.settings import KETI_LONG, NEUTRAL
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender import app
from gpushare.extender.policy import part
from gpushare.kube import client
from tests.support import embedded_objects, extender_in_process, extender_process, scripted_api, wait
from tests.support.embedded_objects import MERGE
from tests.support.extender_in_process import ExtenderInProcess
from tests.support.scripted_api import page, refuse, watch

MAPS = table.BY_RESOURCE["configmaps"]
NAME = "gpu-scheduler-policy"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """A node with a GPU, a node without, and the namespace of the policy."""
    async with ApiServer(bookmark_seconds=0.2) as server:
        for made in (embedded_objects.node("a", 8000), embedded_objects.node("cpu")):
            embedded_objects.create(server, made)
        embedded_objects.create(server, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "gpu"}})
        yield server


@pytest.fixture
async def extender(server: ApiServer) -> AsyncIterator[ExtenderInProcess]:
    async with extender_in_process.running(server, policy_namespace="gpu") as running:
        yield running


def write(server: ApiServer, **data: str) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "gpu"}}
    embedded_objects.create(server, made | {"data": _keys(data)})


def edit(server: ApiServer, **data: str) -> None:
    server.registry.patch(MAPS, "gpu", NAME, MERGE, {"data": _keys(data)})


def _keys(data: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "-"): value for key, value in data.items()}


def told(server: ApiServer, reason: str) -> list[str]:
    return [text for _, why, name, text in embedded_objects.events(server) if (why, name) == (reason, NAME)]


def setting(key: str, value: str) -> str:
    return f'gpushare_policy_setting{{key="{key}",value="{value}"}}'


def without_gpu(name: str) -> dict[str, Any]:
    return embedded_objects.pod(name, direct=False) | {
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main", "image": "busybox"}]}
    }


async def test_an_edit_acts_at_once_and_is_told_in_an_event_a_metric_and_in_explanations(
    server: ApiServer, extender: ExtenderInProcess
) -> None:
    life = extender.extender.life
    assert life.settings == NEUTRAL
    write(server, gpu_allocate_prefer="spread")
    await wait.eventually(lambda: life.settings == KETI_LONG, "the policy")
    edit(server, gpu_allocate_prefer="binpack")
    await wait.eventually(lambda: life.settings.prefer == "binpack", "the edit")
    await wait.eventually(lambda: len(told(server, "PolicyApplied")) == 2, "both events")
    in_force = {f"in force: {configmaps.in_one_line(one)}" for one in (KETI_LONG, life.settings)}
    assert {*told(server, "PolicyApplied")} == in_force
    metrics = await extender.metrics()
    assert metrics[setting("gpu-allocate-prefer", "binpack")] == 1
    assert setting("gpu-allocate-prefer", "spread") not in metrics
    explained = await extender.post("explain", embedded_objects.pod("waits", 5000))
    assert explained["policy"] == {"name": "binpack", "settings": configmaps.settings_in_words(life.settings)}


async def test_a_bad_edit_changes_nothing_and_is_told(server: ApiServer, extender: ExtenderInProcess) -> None:
    life = extender.extender.life
    write(server)
    await wait.eventually(lambda: life.settings == KETI_LONG, "the policy")
    edit(server, gpu_allocate_prefer="binpak")
    await wait.eventually(lambda: told(server, "PolicyRefused"), "the event")
    assert told(server, "PolicyRefused")[0].startswith('gpu-allocate-prefer is "binpak", and may be spread or binpack.')
    assert life.settings == KETI_LONG
    metrics = await extender.metrics()
    assert metrics["gpushare_policy_refused_total"] == 1
    assert metrics[setting("gpu-allocate-prefer", "spread")] == 1
    edit(server, gpu_allocate_prefer="binpack")
    await wait.eventually(lambda: life.settings.prefer == "binpack", "the mended one")


async def test_deleting_the_configmap_ends_its_policy(server: ApiServer, extender: ExtenderInProcess) -> None:
    write(server)
    await wait.eventually(lambda: extender.extender.life.settings == KETI_LONG, "the policy")
    server.registry.delete(MAPS, "gpu", NAME, {})
    await wait.eventually(lambda: extender.extender.life.settings == NEUTRAL, "the end")


async def test_a_pod_without_gpus_passes_prefers_a_node_without_and_is_bound(
    server: ApiServer, extender: ExtenderInProcess
) -> None:
    write(server)
    await wait.eventually(lambda: extender.extender.life.settings == KETI_LONG, "the policy")
    made = embedded_objects.create(server, without_gpu("web"))
    assert (await extender.filter(made, "a", "cpu"))["NodeNames"] == ["a", "cpu"]
    assert (await extender.post("choose", extender_process.question(made, ["a", "cpu"])))["NodeNames"] == ["a", "cpu"]
    assert await extender.prioritize(made, "a", "cpu") == [{"Host": "cpu", "Score": 10}]
    assert await extender.bind(made, "cpu") == ""
    bound = embedded_objects.find(server, "web")
    assert bound is not None
    assert (bound["spec"]["nodeName"], bound["metadata"].get("annotations") or {}) == ("cpu", {})
    assert not extender.ledger.holdings()


async def test_pods_wait_for_a_reserved_node_and_are_woken_when_it_is_reserved_no_longer(
    server: ApiServer, extender: ExtenderInProcess
) -> None:
    server.registry.patch(embedded_objects.NODES, "", "a", MERGE, {"metadata": {"annotations": {"reserved": "Kim"}}})
    write(server, node_reservation_permit="true")
    await wait.eventually(lambda: extender.extender.life.settings.reservation, "the policy")
    await wait.eventually(extender.extender.reach.reserved, "the reservation")
    waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
    refused = await extender.filter(waits, "a", "cpu")
    assert refused["FailedAndUnresolvableNodes"]["a"] == "node(s) that are reserved"
    web = embedded_objects.create(server, without_gpu("web"))
    assert (await extender.filter(web, "a", "cpu"))["NodeNames"] == ["cpu"]
    edit(server, node_reservation_permit="false")
    await wait.eventually(lambda: embedded_objects.woken(server, "waits"), "the wake-up")
    assert (await extender.filter(waits, "a", "cpu"))["NodeNames"] == ["a"]


async def test_nothing_is_answered_before_the_policy_was_read(server: ApiServer) -> None:
    """A pod that waits for a reserved node must not get it because the extender starts anew."""
    server.registry.patch(embedded_objects.NODES, "", "a", MERGE, {"metadata": {"annotations": {"reserved": "Kim"}}})
    write(server, node_reservation_permit="true")
    waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
    for _ in range(5):
        async with extender_in_process.running(server, policy_namespace="gpu") as extender:
            assert (await extender.filter(waits, "a"))["NodeNames"] == []


async def test_without_the_option_configmaps_mean_nothing(server: ApiServer) -> None:
    write(server, gpu_allocate_prefer="binpack")
    async with extender_in_process.running(server) as running:
        assert running.extender.policy is None
        assert not [name for name in await running.metrics() if name.startswith("gpushare_policy_setting")]


@pytest.mark.parametrize("answer", [refuse(403, "Forbidden"), refuse(404), refuse(500), scripted_api.hang])
async def test_without_the_right_to_read_them_everything_else_is_as_ever(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "FIRST_SECONDS", 0.05)
    async with scripted_api.serve() as server, client.connect(server.access()) as api:
        for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/kube-system/configmaps"):
            server.on(f"GET {path}", page([], "5"))
            server.on(f"WATCH {path}", watch(then="hang"))
        server.on("GET /apis/gpushare.io/v1alpha1/gpunodes", refuse(404))
        server.on("GET /api/v1/namespaces/gpu/configmaps", answer)
        made = app.Extender(app.Config("127.0.0.1", [0], "binpack", None, None, policy_namespace="gpu"), api)
        tasks = made.start()
        try:
            await wait.eventually(lambda: server.count("GET /api/v1/namespaces/gpu/configmaps"), "the question")
            await wait.eventually(lambda: not made.not_ready() and made.is_connected(), "an extender that answers")
            assert made.life.settings == NEUTRAL
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
