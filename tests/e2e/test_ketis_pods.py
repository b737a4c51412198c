"""Pods as KETI's users write them, on a real API server and kube-scheduler: MPS shares, and `priority`."""

import contextlib
import copy
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from gpushare.core.admission import mps
from gpushare.core.admission.priority import SCHEDULER
from gpushare.core.facts import names
from tests.e2e import test_admission, test_webhook
from tests.e2e.harness import command_line, objects, shipped
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.webhooks import Webhooks
from tests.e2e.harness.world import World
from tests.support import pod_watch, wait
from tests.support.api_client import unique
from tests.support.objects import Object

PRIORITIES = "keti/deployments/priority.yaml"
PATIENCE = 30.0
LEVEL = "pod-security.kubernetes.io/enforce"
# KETI's own example, with the image of these tests.
NBODY = """
apiVersion: batch/v1
kind: Job
metadata: {name: nbody-benchmark-mps-test}
spec:
  template:
    spec:
      hostIPC: true
      schedulerName: gpu-scheduler
      containers:
        - image: registry.invalid/none:1
          name: nbody1
          args: [nbody, -benchmark, -numdevices=1, -numbodies=1982000]
          resources:
            limits: {keti.com/mpsgpu: 1, cpu: "250m", memory: "6400Mi"}
            requests: {cpu: "250m", memory: "6400Mi"}
          volumeMounts:
            - {name: nvidia-mps, mountPath: /tmp/nvidia-mps}
      volumes:
        - {name: nvidia-mps, hostPath: {path: /tmp/nvidia-mps}}
      restartPolicy: Never
"""
installed, pin = test_webhook.installed, test_admission.pin


def priority_pod(name: str, written: str | None, **spec: str) -> Object:
    notes = {} if written is None else {names.PRIORITY: written}
    made = objects.pod(SCHEDULER, name=name, containers={"main": 1000}, annotations=notes)
    made["spec"] |= spec
    return made


async def comes_out(world: World, pod: Object) -> tuple[str, int, str]:
    """Class, number and preemption policy."""
    answer = await world.api.call("POST", world.api.pods, pod, dryRun="All")
    assert answer.code == 201, answer.message
    spec = answer.body["spec"]
    return spec.get("priorityClassName", ""), spec["priority"], spec["preemptionPolicy"]


async def is_high(world: World) -> bool:
    return (await comes_out(world, priority_pod("probe", "HIGH")))[0] == "gpu-high"


NONE = ("", 0, "PreemptLowerPriority")
WORDS: dict[str | None, tuple[str, int, str]] = {
    None: NONE, "": NONE, "M": NONE, "medium": NONE, " H": NONE, "ı": NONE, "100": NONE,
    "L": ("gpu-low", -40, "Never"), "low": ("gpu-low", -40, "Never"), "LOW": ("gpu-low", -40, "Never"),
    "h": ("gpu-high", 50, "Never"), "High": ("gpu-high", 50, "Never"),
    "I": ("gpu-immediate", 1450, "Never"), "immediately": ("gpu-immediate", 1450, "Never"),
    "Immediatly": ("gpu-immediate", 1450, "Never"),
}  # fmt: skip


async def check_priorities(world: World) -> int:
    """Every word; and whoever names a class or another scheduler is left alone. Something gives classes now."""
    for written, expected in WORDS.items():
        assert await comes_out(world, priority_pod("p", written)) == expected, written
    own = await comes_out(world, priority_pod("p", "LOW", priorityClassName="gpu-high"))
    assert own == WORDS["h"]
    assert await comes_out(world, priority_pod("p", "LOW", schedulerName="default-scheduler")) == NONE
    # Even one whose class was deleted is created, and the others still get theirs.
    await world.cluster.kubectl("delete", "priorityclass", "gpu-high")

    async def lacks_a_class() -> bool:
        return await comes_out(world, priority_pod("p", "HIGH")) == NONE

    await wait.eventually_asked(lacks_a_class, "a class that is gone is not given", PATIENCE)
    assert await comes_out(world, priority_pod("p", "LOW")) == WORDS["L"]
    return len(WORDS) + 4


@pytest.fixture
async def priorities(world: World) -> AsyncIterator[None]:
    async with test_admission.in_force(world, PRIORITIES, is_high):
        yield


@pytest.fixture
async def classes(world: World) -> AsyncIterator[None]:
    """Those of the file, without its policy."""
    made = [one for one in shipped.documents(PRIORITIES) if one["kind"] == "PriorityClass"]
    await world.cluster.apply(*made)
    try:
        yield
    finally:
        for one in made:
            await world.cluster.kubectl("delete", "priorityclass", one["metadata"]["name"], "--ignore-not-found")


@pytest.mark.usefixtures("classes")
async def test_policy_and_webhook_give_the_same_priority_to_every_pod(
    world: World, installed: Webhooks, figures: Figures
) -> None:
    policy = [one for one in shipped.documents(PRIORITIES) if one["kind"] != "PriorityClass"]
    await world.cluster.apply(*policy)
    try:
        await test_admission.until(PRIORITIES, world, is_high, True)
        tried = await check_priorities(world)
    finally:
        for one in policy:
            await world.cluster.kubectl("delete", one["kind"], one["metadata"]["name"])
    await world.cluster.apply(*[one for one in shipped.documents(PRIORITIES) if one["kind"] == "PriorityClass"])
    await test_admission.until(PRIORITIES, world, is_high, False)
    await installed.replica()
    await installed.registered()
    await test_admission.until("the webhook", world, is_high, True)
    await check_priorities(world)
    figures.say("KETI's priority", f"{tried} pods, by policy and by webhook: the same class, number and policy")


@pytest.mark.usefixtures("priorities")
async def test_waiting_pods_are_taken_by_ketis_priority(world: World, figures: Figures) -> None:
    """Created in the opposite order, while no scheduler is there."""
    await world.make_nodes(1, gpus=[8000])
    created = {"low": "LOW", "none": None, "high": "HIGH", "immediate": "Immediatly"}
    for name, written in created.items():
        await world.api.create(world.api.pods, priority_pod(name, written))
    async with world.cluster.extender(), world.cluster.scheduler(name=SCHEDULER, verbosity=3) as scheduler:
        await world.watch.until_bound(*created, seconds=20)
        log = scheduler.log.read_text()
    tried = re.findall(rf'"Attempting to schedule pod" pod="{world.api.namespace}/([a-z]+)"', log)
    assert tried == ["immediate", "high", "none", "low"]
    figures.say("the queue by KETI's priority", f"created {', '.join(created)}; taken {', '.join(tried)}")


@pytest.mark.usefixtures("priorities")
async def test_a_quota_limits_who_may_say_high(world: World, figures: Figures) -> None:
    of_high = {"scopeName": "PriorityClass", "operator": "In", "values": ["gpu-high", "gpu-immediate"]}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "nobody-is-high", "namespace": world.api.namespace},
        "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [of_high]}},
    }
    await world.cluster.apply(quota)

    async def is_refused() -> bool:
        answer = await world.api.call("POST", world.api.pods, priority_pod("p", "HIGH"), dryRun="All")
        return answer.code == 403 and "exceeded quota: nobody-is-high" in answer.message

    await wait.eventually_asked(is_refused, "the quota", PATIENCE)
    for written in ("LOW", "M", None):
        assert await comes_out(world, priority_pod("p", written)) == WORDS[written]
    await world.cluster.kubectl("-n", world.api.namespace, "delete", "resourcequota", "nobody-is-high")
    figures.say("a quota for class gpu-high", "refuses pods with priority HIGH at submit, and no others")


@pytest.mark.usefixtures("pin")
async def test_an_mps_share_is_told_its_limits_by_the_binding(world: World, figures: Figures) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000, 4000], slots=4, pin="direct")
    wide = objects.pod(SCHEDULER, name="wide", containers={"main": {"mps": 2}, "plain": None})
    sized = objects.pod(
        SCHEDULER, name="sized", init={"fetch": {"mps": 1}}, containers={"main": {"mps": 1}},
        annotations={"GPUrequest": "100M", "GPUlimits": "1Gi", names.MPS_THREADS: "30"},
    )  # fmt: skip
    jobs = f"/apis/batch/v1/namespaces/{world.api.namespace}/jobs"
    async with world.cluster.extender(), world.cluster.scheduler(name=SCHEDULER):
        for pod in (wide, sized):
            await world.api.create(world.api.pods, pod)
        await world.api.create(jobs, yaml.safe_load(NBODY))
        await world.watch.until("three are bound", lambda: _bound(world) == 3, 30)
    told = {name.partition("-")[0]: _told(pod) for name, pod in world.watch.pods.items()}
    notes = {name: world.watch.pods[name]["metadata"]["annotations"] for name in ("wide", "sized")}
    assert set(notes["wide"][names.UUID].split(",")) == {f"GPU-{node}-0", f"GPU-{node}-1"}
    # A quarter of the smaller GPU on both: which of them is 0 is CUDA's decision.
    assert told["wide"]["main"][names.MPS_LIMIT] == "0=1000M,1=1000M"
    assert told["wide"]["plain"] == {}
    for container in ("fetch", "main"):
        assert told["sized"][container][names.MPS_LIMIT] == "0=1024M"
        assert told["sized"][container][names.MPS_PERCENTAGE] == "30"
        assert told["sized"][container][names.MPS_PIPE] == names.MPS_PIPE_FOLDER
    assert told["sized"]["main"][names.VISIBLE_DEVICES] == notes["sized"][names.UUID]
    await _check_nbody(world, told["nbody"])
    await world.api.call("DELETE", f"{jobs}/nbody-benchmark-mps-test", {"propagationPolicy": "Background"})
    figures.say("an MPS share", f"on 8000 and 4000 MiB with 4 slots: {told['wide']['main'][names.MPS_LIMIT]}")


async def _check_nbody(world: World, told: Object) -> None:
    """KETI's own example: what it says by hand is there once, and what it needs besides."""
    (name,) = (name for name in world.watch.pods if name.startswith("nbody"))
    pod = world.watch.pods[name]
    (container,) = pod["spec"]["containers"]
    folders = [mount["mountPath"] for mount in container["volumeMounts"] if "kube-api" not in mount["name"]]
    assert folders == [names.MPS_PIPE_FOLDER]
    volumes = [volume["name"] for volume in pod["spec"]["volumes"] if "kube-api" not in volume["name"]]
    assert volumes == ["nvidia-mps"]
    assert pod["spec"]["hostIPC"] is True
    assert told["nbody1"][names.VISIBLE_DEVICES] == pod["metadata"]["annotations"][names.UUID]
    assert re.fullmatch(r"0=\d+M", told["nbody1"][names.MPS_LIMIT])


def _bound(world: World) -> int:
    return sum(bool(pod_watch.node_of(pod)) for pod in world.watch.pods.values())


def _told(pod: Object) -> dict[str, dict[str, str]]:
    return test_admission.environments(pod)


@contextlib.asynccontextmanager
async def strict_namespace(world: World) -> AsyncIterator[str]:
    """One whose pods may use no folder of their node."""
    name = unique("strict")
    await world.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {LEVEL: "baseline"}}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"

    async def has_its_account() -> bool:
        return (await world.api.get(account)).code == 200

    try:
        await wait.eventually_asked(has_its_account, "the namespace has its account", PATIENCE)
        yield name
    finally:
        await world.api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.usefixtures("pin")
async def test_where_folders_of_the_node_are_forbidden_an_mps_share_is_refused_at_submit_with_their_names(
    world: World, tmp_path: Path, figures: Figures
) -> None:
    await world.make_nodes(1, gpus=[8000], slots=4, pin="direct")
    asking = objects.pod(SCHEDULER, name="client", containers={"main": {"mps": 1}})
    words = f'volumes "{mps.PIPES[0]}", "{mps.SHARED_MEMORY[0]}"'
    async with strict_namespace(world) as strict:
        refused = await world.api.call("POST", f"/api/v1/namespaces/{strict}/pods", asking)
        assert refused.code == 403
        assert f'violates PodSecurity "baseline:latest": hostPath volumes ({words})' in refused.message
        memory = objects.pod(SCHEDULER, name="memory", containers={"main": 1000})
        assert (await world.api.call("POST", f"/api/v1/namespaces/{strict}/pods", memory)).code == 201
        event = await _refused_template(world, strict, asking)
        assert words in event
        file = tmp_path / "client.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **asking}))
        config = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
        code, said, _ = await command_line.piped(config, "gpushare", "why", "-f", str(file), "-n", strict)
        assert (code, said.partition(": ")[0]) == (1, f"client ({file}) would not be created")
        assert words in said
    figures.say("pod security baseline", f"{refused.message} / {event} / {said.strip()}")


async def _refused_template(world: World, namespace: str, pod: Object) -> str:
    """The event that its ReplicaSet gets."""
    labels = {"app": "client"}
    template = {"metadata": {"labels": labels}, "spec": copy.deepcopy(pod["spec"])}
    deployment = {
        "metadata": {"name": "clients"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    await world.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)

    async def event() -> str | None:
        found = (await world.api.get(f"/api/v1/namespaces/{namespace}/events")).body["items"]
        told = (one for one in found if one["involvedObject"]["kind"] == "ReplicaSet")
        return next((str(one["message"]) for one in told if one["reason"] == "FailedCreate"), None)

    return await wait.eventually_asked(event, "the ReplicaSet is told", PATIENCE)
