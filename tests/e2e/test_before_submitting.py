"""`gpushare why -f` on a real API server whose GPU nodes pin in both ways: what it says is what then happens.

The admission policy is limited to namespaces by label, as deploy/admission.yaml proposes it for such clusters.
"""

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import command_line, objects, shipped
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import pod_watch

LABEL = {"gpushare.io/pin": "direct"}
PLUGIN, DIRECT = 11441, 40536  # MiB of the largest GPU of each node
PATIENCE = 30.0
Said = tuple[int, str, str]


@pytest.fixture
async def both(world: World) -> AsyncIterator[tuple[str, str]]:
    """A node of each kind, by name: with a device plugin, and pinned directly; and the limited policy in force."""
    plugin, direct = await world.make_various_nodes(
        [{"gpus": [PLUGIN], "pin": "plugin"}, {"gpus": [DIRECT, 2500], "pin": "direct"}]
    )
    policy, binding = copy.deepcopy(shipped.documents("admission.yaml"))
    binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": LABEL}}
    await world.cluster.kubectl("label", "namespace", world.api.namespace, "gpushare.io/pin=direct")
    await world.cluster.apply(policy, binding)
    try:
        await _until(lambda: _is_pinned(world))
        yield plugin, direct
    finally:
        await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / "admission.yaml")
        await _until(lambda: _is_pinned(world), wanted=False)


async def _until(condition: Callable[[], Awaitable[bool]], *, wanted: bool = True) -> None:
    """What the API server is told counts a moment later."""
    async with asyncio.timeout(PATIENCE):
        while await condition() is not wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _is_pinned(world: World) -> bool:
    asking = objects.pod(name="asking", containers={"main": 1})
    answer = await world.api.call("POST", world.api.pods, asking, dryRun="All")
    return bool(answer.body["spec"]["containers"][0].get("env"))


async def _is_refused(world: World, amount: int) -> bool:
    asking = objects.pod(name="asking", containers={"main": amount})
    return (await world.api.call("POST", world.api.pods, asking, dryRun="All")).code != 201


@contextlib.asynccontextmanager
async def _another_namespace(world: World) -> AsyncIterator[str]:
    """One that the policy leaves alone."""
    name = f"{world.api.namespace}-other"
    await world.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield name
    finally:
        await world.api.call("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
        await world.api.call("DELETE", f"/api/v1/namespaces/{name}")


def _file(folder: Path, name: str, amount: int, **spec: str) -> Path:
    made = {"apiVersion": "v1", "kind": "Pod", **objects.pod(name=name, containers={"main": amount})}
    made["spec"] |= spec
    file = folder / f"{name}.json"
    file.write_text(json.dumps(made))
    return file


async def _why(config: Path, file: Path, namespace: str, *words: str) -> Said:
    """What is said alone, which must be what is said as kubectl's plugin."""
    alone = await command_line.piped(config, "gpushare", "why", "-f", str(file), "-n", namespace, *words)
    plugin = await command_line.piped(config, "kubectl", "gpushare", "why", "-f", str(file), "-n", namespace, *words)
    assert alone == plugin
    return alone


async def _is_bound(world: World, path: str) -> bool:
    return bool(pod_watch.node_of((await world.api.get(path)).body))


async def test_with_both_pins_what_is_said_before_is_what_happens_then(
    world: World, both: tuple[str, str], tmp_path: Path, figures: Figures
) -> None:
    plugin, direct = both
    config, mine = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN]), world.api.namespace
    giant, small = _file(tmp_path, "giant", 50000), _file(tmp_path, "small", 3000)
    async with _another_namespace(world) as other, world.cluster.extender(), world.cluster.scheduler():
        too_large = {name: await _why(config, giant, name) for name in (mine, other)}
        await world.watch.until_bound(*await world.make_pods({"name": "fills", "containers": {"main": DIRECT - 1000}}))
        waits, fits = await _why(config, small, mine), await _why(config, small, other)
        url = "http://127.0.0.1:12345"
        told = [await command_line.piped(config, "gpushare", "why", "-f", str(small), "-n", name, "--extender", url)
                for name in (mine, other)]  # fmt: skip
        await world.make_pods({"name": "small", "containers": {"main": 3000}})
        await world.watch.until_refused("small")
        refused = pod_watch.refusal(world.watch.pods["small"])
        theirs = f"/api/v1/namespaces/{other}/pods"
        await world.api.create(theirs, objects.pod(name="small", containers={"main": 3000}))
        await _until(lambda: _is_bound(world, f"{theirs}/small"))
        placed = pod_watch.node_of((await world.api.get(f"{theirs}/small")).body)
        there = (await world.api.get(theirs)).names()

    assert f"The largest is {DIRECT} MiB ({direct})." in too_large[mine][1]
    assert f"The largest is {PLUGIN} MiB ({plugin})." in too_large[other][1]
    sentence = "no single GPU has 3000 MiB free"
    assert (waits[0], waits[2]) == (1, "")
    assert waits[1].startswith(f"small ({small}) would wait: {sentence}.\n")
    assert fits == (
        0,
        f"small ({small}) would fit now: {plugin} GPU 0, {PLUGIN} of {PLUGIN} MiB free, 8441 left after it.\n",
        "",
    )
    assert told == [waits, fits]
    assert sentence in refused
    assert placed == plugin
    assert there == ["small"]  # what was only asked about is nowhere
    figures.say("why -f with both pins", f"{waits[1].splitlines()[0]} / {fits[1].strip()} and so it was")


async def test_who_may_not_create_pods_gets_the_same_answer_by_reading_the_policy(
    world: World, both: tuple[str, str], tmp_path: Path, figures: Figures
) -> None:
    """With the view role; and with less than that both answers, of which the worse counts."""
    plugin, _ = both
    mine = world.api.namespace
    file = _file(tmp_path, "large", 20000)
    kubectl = world.cluster.kubectl
    await kubectl("apply", "-f", shipped.DEPLOY / "view-rbac.yaml")
    await kubectl("create", "clusterrole", "less", "--verb=get,list", "--resource=nodes,pods")
    try:
        async with _another_namespace(world) as other:
            viewer, less = await _account(world, "viewer", "gpushare-view"), await _account(world, "less", "less")
            seen = {name: await _why(viewer, file, name) for name in (mine, other)}
            unsure = await _why(less, file, mine)
            programs = await _why(less, file, mine, "-o", "json")
    finally:
        await kubectl("delete", "clusterrolebinding", "viewer", "less", "--ignore-not-found")
        await kubectl("delete", "clusterrole", "gpushare-view", "less")
    note = f'user "system:serviceaccount:{mine}:viewer" may not create pods there'
    assert seen[mine][0] == 0
    assert note in seen[mine][2]
    assert seen[other][:2] == (1, seen[other][1])
    assert f"The largest is {PLUGIN} MiB ({plugin})." in seen[other][1]
    assert unsure[0] == 1
    assert "can never run here" in unsure[1]
    assert f"if it does: large ({file}) would fit now" in unsure[2]
    assert "--clusterrole=gpushare-view" in unsure[2]
    (item,) = json.loads(programs[1])["items"]
    assert (item["admission"], item["verdict"], item["otherwise"]["verdict"]) == ("unknown", "never", "fits")
    figures.say("why -f without the right to create pods", "the same answer from the policy; without that both answers")


async def _account(world: World, name: str, role: str) -> Path:
    namespace = world.api.namespace
    await world.cluster.kubectl("create", "serviceaccount", name, "-n", namespace)
    await world.cluster.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={role}", f"--serviceaccount={namespace}:{name}"
    )
    return await world.cluster.account_kubeconfig(namespace, name)


async def test_what_the_api_server_would_refuse_is_said_in_its_words(world: World, tmp_path: Path) -> None:
    await world.make_nodes(1, gpus=[8000])
    config, mine = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN]), world.api.namespace
    await world.cluster.kubectl("create", "quota", "few", f"--hard=requests.{names.GPU_MEM}=1000", "-n", mine)
    await _until(lambda: _is_refused(world, 3000))
    over = await _why(config, _file(tmp_path, "over", 3000), mine)
    within = await _why(config, _file(tmp_path, "within", 1000), mine)
    await world.make_pods({"name": "within", "containers": {"main": 100}, "scheduler": "nobody"})
    taken = await _why(config, _file(tmp_path, "within", 500), mine)
    invalid = await _why(config, _file(tmp_path, "broken", 100, restartPolicy="x", dnsPolicy="y"), mine)
    unknown_class = await _why(config, _file(tmp_path, "first", 100, priorityClassName="nobody-made-it"), mine)

    memory = f"requests.{names.GPU_MEM}"
    asked = f"requested: {memory}=3k, used: {memory}=0, limited: {memory}=1k"
    part = "  That is what the API server says to a dry run, not GPU memory.\n"
    assert over == (1, f"over ({tmp_path}/over.json) would not be created: exceeded quota: few, {asked}.\n{part}", "")
    assert (within[0], taken[0]) == (0, 0)
    assert invalid[0] == 1
    assert "broken.json) would not be created: [spec.restartPolicy: Unsupported value" in invalid[1]
    assert "would not be created: no PriorityClass with name nobody-made-it was found." in unknown_class[1]
    assert unknown_class[2] == ""


async def test_a_webhook_that_a_dry_run_cannot_reach_is_no_answer(world: World, tmp_path: Path) -> None:
    await world.make_nodes(1, gpus=[8000])
    config, mine = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN]), world.api.namespace
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": mine}}
    hook = {"name": "gone.example.com", "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": here, "rules": [rule]}  # fmt: skip
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await world.cluster.apply({**kind, "metadata": {"name": "gone"}, "webhooks": [hook]})
    try:
        await _until(lambda: _is_refused(world, 3000))
        said = await _why(config, _file(tmp_path, "small", 3000), mine)
    finally:
        await world.cluster.kubectl("delete", "validatingwebhookconfiguration", "gone")
    assert said[0] == 0
    assert said[1].startswith(f"small ({tmp_path}/small.json) would fit now")
    assert (
        'checked without a dry run (the API server says: Internal error occurred: failed calling webhook "gone'
        in said[2]
    )
