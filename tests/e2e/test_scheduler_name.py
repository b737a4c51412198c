"""deploy/scheduler-name.yaml and `gpushare webhook --scheduler-name` on a real API server: pods that ask for shares are
placed by the second scheduler although nobody wrote its name."""

import contextlib
import functools
from collections.abc import AsyncIterator

import pytest

from gpushare.core.facts import names
from tests.contracts.api import scheduler_table
from tests.contracts.api.scheduler_table import MANY, TABLE
from tests.e2e import test_schedulers
from tests.e2e.harness import shipped, webhooks
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.webhooks import Webhooks
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.api_client import unique
from tests.support.objects import Object

PATIENCE = 30.0
EXAMPLE = shipped.DEPLOY.parent / "examples" / "01-deployment.yaml"
FILES = ("admission.yaml", "admission-nvidia.yaml", "scheduler-name.yaml")
ROWS = [*TABLE, *MANY]
DEFAULT = "default-scheduler"


@pytest.fixture
async def installed(world: World) -> AsyncIterator[Webhooks]:
    async with webhooks.installed(world.cluster) as found:
        yield found


@contextlib.asynccontextmanager
async def policies(world: World, *files: str) -> AsyncIterator[None]:
    for file in files:
        await world.cluster.kubectl("apply", "-f", shipped.DEPLOY / file)
    try:
        yield
    finally:
        for file in files:
            await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / file)
        await in_force(world, DEFAULT, DEFAULT)


async def given(world: World, row: Object, namespace: str) -> str:
    """The scheduler that the API server writes into such a pod."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = await world.api.call("POST", path, scheduler_table.pod(row), dryRun="All")
    assert answer.code == 201, (row["name"], answer.message)
    return str(answer.body["spec"]["schedulerName"])


async def in_force(world: World, memory: str, nvidia: str) -> None:
    """Until pods of these two kinds get these schedulers."""

    async def so() -> bool:
        rows = [{"name": "probe", "asks": {"main": {kind: 1}}} for kind in ("mem", "nvidia")]
        return [await given(world, row, world.api.namespace) for row in rows] == [memory, nvidia]

    await wait.eventually_asked(so, f"pods get {memory}, those with nvidia.com/gpu {nvidia}", PATIENCE)


@contextlib.asynccontextmanager
async def namespaces(world: World) -> AsyncIterator[dict[str, str]]:
    """By labels, a namespace that has them."""
    made: dict[str, str] = {}
    for labels in [row.get("labels", {}) for row in ROWS]:
        if str(labels) in made:
            continue
        name = made[str(labels)] = unique("scheduler")
        await world.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        await wait.eventually_asked(functools.partial(_has_account, world, name), "its account is there", PATIENCE)
    try:
        yield made
    finally:
        for name in made.values():
            await world.api.call("DELETE", f"/api/v1/namespaces/{name}")


async def _has_account(world: World, namespace: str) -> bool:
    return (await world.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")).code == 200


async def come_out(world: World, places: dict[str, str]) -> dict[str, str]:
    return {row["name"]: await given(world, row, places[str(row.get("labels", {}))]) for row in ROWS}


@pytest.mark.parametrize("nvidia", [True, False], ids=["nvidia.com/gpu is pinned", "nvidia.com/gpu is left alone"])
async def test_policy_and_webhook_give_every_pod_the_scheduler_of_the_table(
    world: World, installed: Webhooks, figures: Figures, nvidia: bool
) -> None:
    files = [file for file in FILES if nvidia or "nvidia" not in file]
    second = names.GPU_SCHEDULER
    wanted = {row["name"]: scheduler_table.expected(row, nvidia=nvidia) for row in ROWS}
    async with namespaces(world) as places:
        async with policies(world, *files):
            await in_force(world, second, second if nvidia else DEFAULT)
            assert await come_out(world, places) == wanted
        flags = ["--nvidia-gpu", "whole"] * nvidia
        await installed.replica("--on-invalid", "warn", "--on-unplaceable", "off", "--scheduler-name", second, *flags)
        await installed.registered()
        await in_force(world, second, second if nvidia else DEFAULT)
        assert await come_out(world, places) == wanted
    figures.say(
        f"scheduler name at admission, nvidia.com/gpu {'pinned' if nvidia else 'left alone'}",
        f"{len(ROWS)} pods through policy, webhook and stand-in: the same scheduler",
    )


async def test_a_deployment_that_names_no_scheduler_is_placed_by_the_second_one(world: World, figures: Figures) -> None:
    """The default scheduler runs too, knows no extender, and would bind by totals: on each GPU there is room for one
    replica, on the node by its total for two."""
    await world.make_nodes(3, gpus=[5000, 5000])
    async with policies(world, "scheduler-name.yaml"):
        await in_force(world, names.GPU_SCHEDULER, DEFAULT)
        async with world.cluster.extender(), world.cluster.scheduler(extenders=[]), _second(world):
            where = ("--namespace", world.api.namespace)
            await world.cluster.kubectl(*where, "apply", "-f", EXAMPLE)
            try:
                placed = await _placed(world, 3)
            finally:
                await world.cluster.kubectl(*where, "delete", "-f", EXAMPLE)
    assert {pod["spec"]["schedulerName"] for pod in placed} == {names.GPU_SCHEDULER}
    assert all(names.ALIYUN_IDX in pod["metadata"]["annotations"] for pod in placed), "each has its GPU"
    figures.say("README's Deployment without schedulerName", "3 replicas placed by gpu-scheduler, each with its GPU")


def _second(world: World) -> contextlib.AbstractAsyncContextManager[object]:
    return test_schedulers.second_scheduler(world)


async def _placed(world: World, count: int) -> list[Object]:
    found: list[Object] = []

    async def all_are() -> bool:
        answer = await world.api.get(f"{world.api.pods}?labelSelector=app%3Dweb")
        found[:] = [pod for pod in answer.body["items"] if pod["spec"].get("nodeName")]
        return len(found) == count

    await wait.eventually_asked(all_are, f"{count} replicas have their node", PATIENCE)
    return found
