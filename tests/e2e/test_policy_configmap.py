"""KETI's policy ConfigMaps on a real cluster: edits act live, a bad one does nothing, and pods leave bad GPUs."""

import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from gpushare.core.facts import names
from gpushare.core.scheduling import reschedule
from tests.e2e.harness import objects, shipped
from tests.e2e.harness.events import about, until_event
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World, gpus_of
from tests.support import pod_watch, wait
from tests.support.objects import Object

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "policy-configmap.md"
NAME = "gpu-scheduler-policy"
EVICTION = "pods/eviction"
SOON = 10.0  # seconds


@asynccontextmanager
async def extender(world: World, *arguments: str) -> AsyncIterator[None]:
    """One that reads the policy in the namespace of the test, with the rights that the guide gives it."""
    (text,) = re.findall(r"```yaml\n(kind: Role\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    await world.cluster.apply(
        *yaml.safe_load_all(text.replace("namespace: gpu}", f"namespace: {world.api.namespace}}}"))
    )
    async with world.cluster.extender("--policy-namespace", world.api.namespace, *arguments):
        yield


async def write(world: World, **data: str) -> None:
    keys = {key.replace("_", "-"): value for key, value in data.items()}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": world.api.namespace}}
    await world.cluster.apply(made | {"data": keys})


async def until_in_force(world: World, key: str, value: str) -> float:
    """Waits until the metric shows this setting; how long that took."""
    begun = time.monotonic()

    async def shown() -> bool | None:
        metrics = await world.metrics()
        return metrics("gpushare_policy_setting", key=key, value=value) == 1 or None

    await wait.eventually_asked(shown, f"{key}={value} in force", SOON)
    return time.monotonic() - begun


async def test_an_edit_acts_live_and_a_bad_one_changes_nothing(world: World, figures: Figures) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000])
    await world.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {names.RESERVED: "for Kim"}}})
    async with extender(world), world.cluster.scheduler(), world.kubelets():
        await write(world, gpu_allocate_prefer="spread", node_reservation_permit="true")
        await until_in_force(world, "node-reservation-permit", "true")
        await world.make_pods({"name": "waits", "containers": {"main": 4000}})
        await world.watch.until_refused("waits")
        assert "node(s) that are reserved" in pod_watch.refusal(world.watch.pods["waits"])

        await write(world, gpu_allocate_prefer="binpak", node_reservation_permit="false")
        refused = await until_event(world, NAME, "PolicyRefused", "binpak")
        metrics = await world.metrics()
        assert metrics("gpushare_policy_refused_total") == 1
        assert metrics("gpushare_policy_setting", key="node-reservation-permit", value="true") == 1
        assert not pod_watch.node_of(world.watch.pods["waits"])

        begun = time.monotonic()
        await write(world, gpu_allocate_prefer="binpack", node_reservation_permit="false")
        await world.watch.until_bound("waits", seconds=SOON)
        taken = world.watch.bound_at["waits"] - begun
        await until_in_force(world, "gpu-allocate-prefer", "binpack")
        applied = await until_event(world, NAME, "PolicyApplied", "gpu-allocate-prefer=binpack")

        await write(world, gpu_allocate_prefer="spread", multi_node_allocation_permit="true")
        await until_event(world, NAME, "PolicyNotPossible", "a pod runs on one node")
    figures.say("from an edit of the policy to the binding of the pod that waited for it", f"{taken * 1000:.0f} ms")
    figures.say("the event of a good edit", applied)
    figures.say("the event of a bad edit", refused)


async def test_an_edit_flips_spread_and_binpack_for_the_next_pod(world: World) -> None:
    await world.make_nodes(1, gpus=[8000, 8000, 8000])
    gpus: list[int] = []
    async with extender(world, "--policy=metric"), world.cluster.scheduler(), world.kubelets():
        for prefer, pods in (("spread", 2), ("binpack", 2), ("spread", 1)):
            await write(world, gpu_allocate_prefer=prefer)
            await until_in_force(world, "gpu-allocate-prefer", prefer)
            for _ in range(pods):
                (name,) = await world.make_pods({"name": f"pod-{len(gpus)}", "containers": {"main": 1000}})
                await world.watch.until_bound(name)
                gpus += gpus_of(world.watch.pods[name])
    first, second, third, fourth, fifth = gpus
    assert len({first, second, fifth}) == 3  # each on an idle GPU
    assert third in (first, second)
    assert fourth == third  # the GPU that most pods use


async def test_pods_of_gpu_scheduler_go_where_their_annotation_or_the_policy_says(world: World) -> None:
    """No managed resources: the extender is asked about every pod, and binds it."""
    first, second, plain = await world.make_various_nodes([{"gpus": [8000]}, {"gpus": [8000]}, {}])
    entry = {"managedResources": [], "prioritizeVerb": "prioritize"}
    mark = world.cluster.audit.mark()
    async with extender(world), world.cluster.scheduler(name="gpu-scheduler", extender=entry), world.kubelets():
        await write(world)
        await until_in_force(world, "non-gpu-node-prefer", "true")
        web: Object = {"scheduler": "gpu-scheduler", "containers": {"main": None}}
        await world.make_pods(
            *({**web, "name": f"web-{i}"} for i in range(5)),
            {**web, "name": "named", "annotations": {names.NODE_NAME: first}},
            *(
                {"name": f"gpu-{node}", "scheduler": "gpu-scheduler", "annotations": {names.NODE_NAME: node},
                 "containers": {"main": 4000}}
                for node in (first, second)
            ),
            {"name": "lost", "scheduler": "gpu-scheduler", "annotations": {names.NODE_NAME: "no-such-node"},
             "containers": {"main": 4000}},
        )  # fmt: skip
        bound = [f"web-{i}" for i in range(5)] + ["named", f"gpu-{first}", f"gpu-{second}"]
        await world.watch.until_bound(*bound)
        await world.watch.until_refused("lost")
    where = {name: pod_watch.node_of(world.watch.pods[name]) for name in bound}
    assert where == {f"web-{i}": plain for i in range(5)} | {
        "named": first,
        f"gpu-{first}": first,
        f"gpu-{second}": second,
    }
    assert "node(s) other than the one its annotation nodeName names" in pod_watch.refusal(world.watch.pods["lost"])
    bindings = [one for one in world.requests(mark) if one.kind == "pods/binding"]
    assert {one.user.username for one in bindings} == {shipped.EXTENDER_USER}


async def test_exactly_one_pod_leaves_an_unhealthy_gpu_and_a_budget_keeps_the_other(
    world: World, figures: Figures
) -> None:
    (sick,) = await world.make_nodes(1, gpus=[8000])
    async with extender(world), world.cluster.scheduler(), world.kubelets(), deployments(world, "moves", "kept"):
        await write(world)
        await world.api.create(_path(world, "policy/v1", "poddisruptionbudgets"), _budget("kept"))
        await world.watch.until("both bound", lambda: len(_on(world, sick)) == 2, SOON)
        kept, moves = sorted(_on(world, sick))
        (other,) = await world.make_nodes(1, gpus=[8000])
        await until_in_force(world, "pod-re-schedule-permit", "true")
        mark, begun = world.cluster.audit.mark(), time.monotonic()
        await _set_health(world, sick, lambda gpu: gpu | {"ok": False, "why": "Xid 79"})
        patience = reschedule.BAD_SECONDS + 30
        await world.watch.until("evicted", lambda: moves not in world.watch.pods, patience)
        taken = time.monotonic() - begun
        await world.watch.until("running elsewhere", lambda: len(_on(world, other)) == 1, SOON)
        said = await until_event(world, moves, "GPURescheduled", "has room for it")
        stays = await _message(world, kept, "GPUNotRescheduled", reschedule.PAUSE_SECONDS + 30)
        asked = [one for one in world.requests(mark) if one.kind == EVICTION]
        assert [one.object_ref.name for one in asked if one.response_status.code == 201] == [moves]
        assert {one.object_ref.name for one in asked if one.response_status.code != 201} <= {kept}
        assert kept in world.watch.pods
        assert (await world.metrics())("gpushare_rescheduled_total", reason="unhealthy") == 1
    figures.say("from an unhealthy GPU to the end of its pod", f"{taken:.0f} s")
    figures.say("its event", said)
    figures.say("that of a pod with a budget", stays)


@asynccontextmanager
async def deployments(world: World, *names: str) -> AsyncIterator[None]:
    """Of one pod each. Afterwards they are gone, so that they make no more pods."""
    path = _path(world, "apps/v1", "deployments")
    for name in names:
        await world.api.create(path, _deployment(name))
    yield
    for name in names:
        await world.api.call("DELETE", f"{path}/{name}", {"propagationPolicy": "Foreground"})
    await world.watch.until("their pods gone", lambda: not world.watch.pods, 30)


def _deployment(name: str) -> Object:
    pod = objects.pod(name=name, containers={"main": 3000})
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _budget(name: str) -> Object:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def _path(world: World, group: str, plural: str) -> str:
    return f"/apis/{group}/namespaces/{world.api.namespace}/{plural}"


def _on(world: World, node: str) -> list[str]:
    return [name for name, pod in world.watch.pods.items() if pod_watch.node_of(pod) == node]


async def _set_health(world: World, node: str, change: Callable[[Object], Object]) -> None:
    path = f"/api/v1/nodes/{node}"
    published = json.loads((await world.api.get(path)).body["metadata"]["annotations"][names.NODE_GPUS])
    published["gpus"] = [change(gpu) for gpu in published["gpus"]]
    await world.patch(path, {"metadata": {"annotations": {names.NODE_GPUS: json.dumps(published)}}})


async def _message(world: World, pod: str, reason: str, seconds: float) -> str:
    async def message() -> str | None:
        return next((str(e["message"]) for e in await about(world, pod) if e["reason"] == reason), None)

    return await wait.eventually_asked(message, f"an event {reason} about {pod}", seconds)
