"""The webhook on a real API server: it does what the policies do, to the letter, and a tenant gets no further."""

import contextlib
import copy
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpushare.core.admission import guard
from gpushare.core.facts import names
from tests.contracts.api import admission_table, test_admission_table
from tests.contracts.api.admission_table import MODES, REFUSED, TABLE, Mode
from tests.e2e import test_admission, test_gpunodes
from tests.e2e.harness import gpunodes, objects, shipped, users, webhooks
from tests.e2e.harness.cluster import Failed
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.webhooks import Webhooks
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.api_client import Api, unique
from tests.support.objects import Object

MANY: list[Object] = [
    {
        "name": f"500 containers and 500 init containers with {resource}",
        "asks": {f"a{i}": {resource: 1} for i in range(500)},
        "init": {f"i{i}": {resource: 1} for i in range(500)},
        "annotations": {names.MPS_THREADS: "50"},
    }
    for resource in ("mem", "mps")
] + [
    {
        "name": "500 MPS clients with variables and mounts of their own",
        "asks": {f"a{i}": {"mps": 1} for i in range(500)},
        "env": {f"a{i}": [f"V{n}=x" for n in range(10)] for i in range(500)},
        "volumes": {f"v{n}": "" for n in range(10)},
        "mounts": {f"a{i}": [f"v{n}:/m/{n}" for n in range(10)] for i in range(500)},
        "annotations": {names.MPS_THREADS: "50"},
    }
]
FLAGS = {"nvidia": ["--nvidia-gpu", "whole"], "void": ["--unasked", "void"]}
PATIENCE = 30.0
tenant = test_admission.tenant


@pytest.fixture
async def installed(world: World) -> AsyncIterator[Webhooks]:
    async with webhooks.installed(world.cluster) as found:
        yield found


@contextlib.asynccontextmanager
async def namespaces(world: World) -> AsyncIterator[dict[str, str]]:
    """By labels, a namespace that has them."""
    made: dict[str, str] = {}
    for row in TABLE:
        labels = row.get("labels", {})
        if str(labels) not in made:
            name = made[str(labels)] = unique("table")
            await world.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            account = {"metadata": {"name": "default"}}
            assert (await world.api.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)).code in (
                201,
                409,
            )
    try:
        yield made
    finally:
        for name in made.values():
            await world.api.call("DELETE", f"/api/v1/namespaces/{name}")


async def come_out(world: World, places: dict[str, str]) -> dict[str, Object]:
    """By row, what the API server makes of its pod, all that is not the same for every pod left out."""
    found = {}
    for row in (*TABLE, *MANY):
        path = f"/api/v1/namespaces/{places[str(row.get('labels', {}))]}/pods"
        answer = await world.api.call("POST", path, admission_table.pod(row, admission_table.name(row)), dryRun="All")
        assert answer.code == 201, (row["name"], answer.message)
        spec = copy.deepcopy(answer.body["spec"])
        for one in (spec, *spec["containers"], *spec.get("initContainers", ())):
            for field in ("volumes", "volumeMounts"):
                one[field] = admission_table.without_token(one.get(field))
        found[row["name"]] = admission_table.without_order(spec)
    return found


async def until_like(world: World, env: int, **words: Any) -> None:
    """Until such a pod gets that many env entries."""

    async def so() -> bool:
        answer = await world.api.call("POST", world.api.pods, objects.pod(name="probe", **words), dryRun="All")
        return answer.code == 201 and len(answer.body["spec"]["containers"][0].get("env", ())) == env

    await wait.eventually_asked(so, f"a new pod has {env} env entries", PATIENCE)


@contextlib.asynccontextmanager
async def policies(world: World, mode: Mode) -> AsyncIterator[None]:
    files = ["admission.yaml", *["admission-nvidia.yaml"] * mode.nvidia, *["unasked.yaml"] * mode.void]
    for file in files:
        await world.cluster.kubectl("apply", "-f", shipped.DEPLOY / file)
    try:
        await in_force(world, mode)
        yield
    finally:
        for file in files:
            await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / file)
        await until_like(world, 0, containers={"main": 1})
        await until_like(world, 0, containers={"main": None})


async def in_force(world: World, mode: Mode) -> None:
    await until_like(world, 5, containers={"main": 1})
    await until_like(world, 1 if mode.void else 0, containers={"main": None})

    async def nvidia() -> bool:
        pod = admission_table.pod({"asks": {"main": {"nvidia": 1}}}, "probe")
        made = await world.api.call("POST", world.api.pods, pod, dryRun="All")
        return bool(made.body["spec"]["containers"][0].get("env")) is mode.nvidia

    await wait.eventually_asked(nvidia, f"nvidia.com/gpu is {'' if mode.nvidia else 'not '}pinned", PATIENCE)


@pytest.mark.parametrize("mode", MODES)
async def test_policy_webhook_and_stand_in_make_the_same_of_every_pod(
    world: World, installed: Webhooks, figures: Figures, mode: str
) -> None:
    chosen = MODES[mode]
    async with namespaces(world) as places:
        async with policies(world, chosen):
            by_policy = await come_out(world, places)
        flags = [word for name in FLAGS if getattr(chosen, name) for word in FLAGS[name]]
        await installed.replica("--on-invalid", "warn", "--on-unplaceable", "off", *flags)
        await installed.registered()
        await in_force(world, chosen)
        by_webhook = await come_out(world, places)
        async with policies_beside(world, chosen):
            by_both = await come_out(world, places)
    for row in (*TABLE, *MANY):
        name = row["name"]
        assert by_webhook[name] == by_policy[name], name
        assert by_both[name] == by_policy[name], f"{name}: pinned twice"
        stand_in = admission_table.without_order((await test_admission_table.admitted(row, chosen))["spec"])
        made = admission_table.contents({"spec": by_policy[name]})
        assert admission_table.contents({"spec": stand_in}) == made, name
    pods = len(TABLE) + len(MANY)
    figures.say(
        f"admission, {mode}",
        f"{pods} pods through policy, webhook, both and stand-in: the same comes out, and nothing twice",
    )


@contextlib.asynccontextmanager
async def policies_beside(world: World, mode: Mode) -> AsyncIterator[None]:
    """The webhook does the same already, so what tells that a policy is in force is its own counter of evaluations."""
    files = ["admission.yaml", *["admission-nvidia.yaml"] * mode.nvidia, *["unasked.yaml"] * mode.void]
    before = await evaluated(world)
    for file in files:
        await world.cluster.kubectl("apply", "-f", shipped.DEPLOY / file)

    async def counted() -> bool:
        await until_like(world, 5, containers={"main": 1})
        return await evaluated(world) > before

    try:
        await wait.eventually_asked(counted, "the policy is evaluated", PATIENCE)
        yield
    finally:
        for file in files:
            await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / file)


async def evaluated(world: World) -> float:
    """How often API servers have asked the policy that pins."""
    page = await world.cluster.kubectl("get", "--raw", "/metrics")
    lines = [line for line in page.splitlines() if line.startswith("apiserver_mutating_admission_policy_check_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'policy="gpushare-pin"' in line)


async def test_what_a_tenant_forges_is_refused_by_the_webhook_as_by_the_policy(
    world: World, installed: Webhooks, tenant: Api, figures: Figures
) -> None:
    await installed.replica()
    await installed.registered()
    await test_admission.until("the guard", world, test_admission.guards, True)
    tried = await test_admission.forge_everything(world, tenant)
    figures.say("annotations forged by a tenant, with the webhook's guard", f"{tried} writes, all refused")


async def test_nobody_but_gpushare_writes_what_a_node_has(world: World, installed: Webhooks) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000])
    await installed.replica()
    await installed.registered()
    await test_admission.until("the guard", world, test_admission.guards, True)
    await test_admission.check_node_guard(world, node)
    async with gpunodes.installed(world.cluster), users.acting_as(world, guard.BY_DEFAULT.all[1]) as node_part:
        made = await node_part.create(test_gpunodes.PATH, test_gpunodes.gpu_node(test_gpunodes.OWN))
        path = f"{test_gpunodes.PATH}/{test_gpunodes.OWN}/status"
        assert (await node_part.call("PUT", path, {**made, "status": {"driver": "true"}})).code == 200
        await test_gpunodes.check_forging(world.api)


async def test_what_can_never_run_is_refused_at_submit_and_what_this_cluster_lacks_is_a_warning(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    await world.make_nodes(1, gpus=[8000], pin="direct")
    await installed.replica()
    await installed.registered()
    await until_like(world, 5, containers={"main": 1})
    bytes_ = objects.pod(name="bytes", containers={"main": "4Gi"})
    said = await kubectl_apply(world, bytes_)
    assert said.endswith('not bytes: container main asks 4Gi, read as 4294967296 MiB. Write "4096".')
    large = objects.pod(name="large", containers={"main": 9000})
    warned = await kubectl_apply(world, large)
    assert "no node of this cluster can ever run this pod: no GPU is as large as 9000 MiB" in warned
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": bytes_["spec"]["containers"]}}},
    }  # fmt: skip
    warned = await kubectl_apply(world, deployment)
    assert warned.startswith("Warning: gpushare: aliyun.com/gpu-mem counts MiB, not bytes: container main asks 4Gi")
    assert (await world.api.get(f"/apis/apps/v1/namespaces/{world.api.namespace}/deployments/web")).code == 200
    figures.say("refused at submit", f"kubectl apply says: {said.splitlines()[-1]}")


async def kubectl_apply(world: World, manifest: Object) -> str:
    """What kubectl prints for a person, warnings and errors included."""
    try:
        command = ("--namespace", world.api.namespace, "apply", "-f", "-")
        return await world.cluster.kubectl(
            *command, given=json.dumps({"apiVersion": "v1", "kind": "Pod"} | manifest), with_stderr=True
        )
    except Failed as error:
        return str(error).strip()


async def test_policy_and_webhook_refuse_at_submit_with_the_sentence_of_the_core(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    await world.cluster.kubectl("apply", "-f", shipped.DEPLOY / "validate.yaml")
    try:
        await wait.eventually_asked(lambda: refused(world, BYTES), "validate.yaml is in force", PATIENCE)
        by_policy = [await sentence(world, row) for row in REFUSED]
    finally:
        await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / "validate.yaml")
    await wait.eventually_asked(lambda: accepted(world, BYTES), "validate.yaml is no longer in force", PATIENCE)
    await installed.replica("--on-unplaceable", "off")
    await installed.registered()
    await wait.eventually_asked(lambda: refused(world, BYTES), "the webhook is asked", PATIENCE)
    by_webhook = [await sentence(world, row) for row in REFUSED]
    for row, policy, webhook in zip(REFUSED, by_policy, by_webhook, strict=True):
        assert webhook.startswith(row.get("says", "")), row["name"]
        assert bool(webhook) is ("says" in row), (row["name"], webhook)
        assert policy == row.get("in_cel", webhook), row["name"]
    figures.say("what can never run", f"{len(REFUSED)} pods: policy, webhook and core say the same")


BYTES: Object = {"asks": {"main": {"mem": "4Gi"}}}


async def refused(world: World, row: Object) -> bool:
    return bool(await sentence(world, row))


async def accepted(world: World, row: Object) -> bool:
    return not await refused(world, row)


async def sentence(world: World, row: Object) -> str:
    """What the API server says no with; empty if it does not."""
    answer = await world.api.call("POST", world.api.pods, admission_table.pod(row, "p"), dryRun="All")
    assert answer.code in (201, 403), answer.message
    return "" if answer.code == 201 else re.split("denied (?:the )?request: ", answer.message, maxsplit=1)[1]


async def test_a_pod_that_asks_nothing_and_names_all_gpus_sees_none(world: World, installed: Webhooks) -> None:
    await installed.replica("--unasked", "void")
    await installed.registered()
    await until_like(world, 1, containers={"main": None})
    row = {"asks": {"main": {}}, "env": {"main": [f"{names.VISIBLE_DEVICES}=all"]}}
    made = await world.api.create(world.api.pods, admission_table.pod(row, "greedy"))
    assert made["spec"]["containers"][0]["env"][-1] == {"name": names.VISIBLE_DEVICES, "value": "void"}
