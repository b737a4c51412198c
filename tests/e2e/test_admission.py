"""The two admission policies on a real API server, and what forged annotations can do without them: no harm."""

import asyncio
import collections
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from gpushare.core.admission import guard
from gpushare.core.facts import names
from tests.e2e.harness import objects, shipped, users
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import pod_watch, wait
from tests.support.api_client import Answer, Api
from tests.support.manifests import NODE
from tests.support.objects import Object

TENANT = "tenant"
GPUS = [8000, 8000]
PATIENCE = 30.0  # seconds until a policy is in force, or until the extender has seen a pod
OURS = (
    names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, names.ALIYUN_ASSIGNED, names.ALIYUN_ASSUME_TIME,
    names.ALLOCATION, names.EXTENDER, names.WOKEN, names.KEPT,
    f"{names.VISIBLE_PREFIX}0", f"{names.VISIBLE_PREFIX}init-0", f"{names.MPS_LIMIT_PREFIX}0",
)  # fmt: skip
FORGED = {
    names.ALIYUN_IDX: "1",
    names.ALIYUN_POD: "1",
    names.ALIYUN_DEV: "1",
    names.ALIYUN_ASSIGNED: "true",
    names.ALIYUN_ASSUME_TIME: "1",
    names.ALLOCATION: '{"0": {"1": 1}}',
    names.EXTENDER: "00000000",
    f"{names.VISIBLE_PREFIX}0": "all",
}
InForce = Callable[[World], Awaitable[bool]]


async def guards(world: World) -> bool:
    forged = objects.pod(name="forged", annotations={names.ALIYUN_IDX: "0"})
    return (await world.api.call("POST", world.api.pods, forged, dryRun="All")).code == 403


async def pins(world: World) -> bool:
    asking = objects.pod(name="asking", containers={"main": 1})
    answer = await world.api.call("POST", world.api.pods, asking, dryRun="All")
    return bool(answer.body["spec"]["containers"][0].get("env"))


@contextlib.asynccontextmanager
async def in_force(world: World, file: str, condition: InForce) -> AsyncIterator[None]:
    """The file's policy, until the end; the next test finds a cluster without it."""
    await world.cluster.kubectl("apply", "-f", shipped.DEPLOY / file)
    try:
        await until(file, world, condition, True)
        yield
    finally:
        await world.cluster.kubectl("delete", "-f", shipped.DEPLOY / file)
        await until(file, world, condition, False)


async def until(file: str, world: World, condition: InForce, wanted: bool) -> None:
    async def as_wanted() -> bool:
        return await condition(world) is wanted

    await wait.eventually_asked(as_wanted, f"{file} is {'' if wanted else 'no longer '}in force", PATIENCE)


@pytest.fixture(name="guard")
async def guard_in_force(world: World) -> AsyncIterator[None]:
    async with in_force(world, "guard.yaml", guards):
        yield


@pytest.fixture
async def pin(world: World) -> AsyncIterator[None]:
    async with in_force(world, "admission.yaml", pins):
        yield


@pytest.fixture
async def tenant(world: World) -> AsyncIterator[Api]:
    """Somebody who may do everything with pods, but is not gpushare."""
    await users.allow(world, TENANT, "pods", "pods/status", "pods/binding", "bindings")
    async with users.acting_as(world, TENANT) as person:
        yield person


# With the policies


@pytest.mark.usefixtures("guard", "pin")
async def test_every_container_that_asks_is_told_its_gpus_and_a_tenants_own_word_loses(
    world: World, tenant: Api, figures: Figures
) -> None:
    await world.make_nodes(1, gpus=[8000] * 4, pin="direct")
    shared = objects.pod(
        name="shared",
        init={"fetch": 2000, "proxy": {"mem": 1000, "sidecar": True}},
        containers={"main": {"mem": 3000, "envs": ["=all"]}, "plain": None, "helper": 7000},
    )
    whole = objects.pod(name="whole", containers={"main": {"count": 2}})
    async with world.cluster.extender(), world.cluster.scheduler():
        for pod in (whole, shared):
            await tenant.create(tenant.pods, pod)
        await world.watch.until_bound("whole", "shared", seconds=20)

    told = {name: environments(world.watch.pods[name]) for name in ("shared", "whole")}
    assert told["shared"].pop("plain") == {}
    amounts = {"fetch": 2000, "proxy": 1000, "main": 3000, "helper": 7000}
    for container, amount in amounts.items():
        assert told["shared"][container]["ALIYUN_COM_GPU_MEM_CONTAINER"] == str(amount)
        _check_aliyun(told["shared"][container], world.watch.pods["shared"])
    _check_aliyun(told["whole"]["main"], world.watch.pods["whole"])

    of_whole = _gpus(world, told["whole"]["main"])
    assert len(of_whole) == 2
    taken: collections.Counter[int] = collections.Counter()
    for container, amount in amounts.items():
        (gpu,) = _gpus(world, told["shared"][container])
        assert gpu not in of_whole
        taken[gpu] += amount * (container != "fetch")  # which has ended when the others start
    assert max(taken.values()) <= 8000
    assert taken.total() == 11000
    figures.say(
        "pinned by admission and binding",
        "app, init and sidecar containers and whole GPUs, each told the GPUs of its binding; a tenant's own "
        f"{names.VISIBLE_DEVICES}=all lost",
    )


@pytest.mark.usefixtures("guard")
async def test_nobody_but_gpushare_writes_its_annotations(world: World, tenant: Api, figures: Figures) -> None:
    tried = await forge_everything(world, tenant)
    figures.say(
        "annotations forged by a tenant, with the guard",
        f"{tried} writes of {len(OURS)} keys (create, patch, status, binding; set and removed), all refused",
    )


async def forge_everything(world: World, tenant: Api) -> int:
    """Tries every write of every annotation of ours, and returns how many were refused: all. A guard is in force."""
    (node,) = await world.make_nodes(1, gpus=GPUS)
    for name in ("bound", "waits"):
        await tenant.create(tenant.pods, objects.pod(scheduler="nobody", name=name, containers={"main": 1000}))
    bound, waits = f"{tenant.pods}/bound", f"{tenant.pods}/waits"
    async with users.acting_as(world, shipped.EXTENDER_USER) as extender:
        assert (await extender.bind("bound", node, annotations=dict.fromkeys(OURS, "ours"))).code == 201
        assert (await extender.patch(waits, _notes({names.WOKEN: "now"}))).code == 200

    tried = 0
    for key in OURS:
        forged, removed = _notes({key: "forged"}), _notes({key: None})
        made = objects.pod(name="forged", annotations={key: "forged"})
        binding = {"metadata": {"name": "waits", **forged["metadata"]}, "target": {"kind": "Node", "name": node}}
        attempts = [
            await tenant.call("POST", tenant.pods, made),
            await tenant.patch(bound, forged),
            await tenant.patch(bound, removed),
            await tenant.patch(f"{bound}/status", forged),
            await tenant.patch(f"{bound}/status", removed),
            await tenant.patch(f"{waits}/status", forged),
            await tenant.bind("waits", node, annotations={key: "forged"}),
            await tenant.call("POST", tenant.pods.removesuffix("pods") + "bindings", binding),
        ]
        for attempt in attempts:
            _check_refused(attempt, key)
        tried += len(attempts)

    peoples = {names.GPU_COUNT: "2", names.POLICY: "spread", names.MEMORY_UNIT: "MiB", "example.com/note": "mine"}
    assert (await tenant.patch(bound, _notes(peoples))).code == 200
    assert (await tenant.patch(f"{bound}/status", {"status": {"message": "well"}})).code == 200
    assert (await tenant.call("POST", tenant.pods, objects.pod(name="other", annotations=peoples))).code == 201
    kept = (await world.api.get(bound)).body["metadata"]["annotations"]
    assert {key: kept[key] for key in OURS} == dict.fromkeys(OURS, "ours")
    return tried


async def test_nobody_but_gpushare_writes_what_a_node_has(world: World) -> None:
    (node,) = await world.make_nodes(1, gpus=GPUS)
    async with in_force(world, "guard.yaml", guards):
        await check_node_guard(world, node)


async def check_node_guard(world: World, node: str) -> None:
    """Not even an admin, by mistake. Everything else of a node stays open to all who may, and removing it too."""
    path = f"/api/v1/nodes/{node}"
    for where in (path, f"{path}/status"):
        attempt = await world.api.patch(where, _notes({names.NODE_GPUS: "{}"}))
        assert attempt.code == 403, attempt.body
        assert attempt.message.endswith(guard.NODE.format(keys=names.NODE_GPUS))
    assert (await world.api.patch(path, _notes({"example.com/note": "mine"}))).code == 200
    assert (await world.api.patch(f"{path}/status", {"status": {"capacity": {"example.com/x": "1"}}})).code == 200
    before = (await world.api.get(path)).body["metadata"]["annotations"][names.NODE_GPUS]
    async with users.acting_as(world, f"system:serviceaccount:{shipped.NAMESPACE}:{NODE}") as node_part:
        await world.cluster.apply(*shipped.rights("node-ds.yaml"))
        assert (await node_part.patch(path, _notes({names.NODE_GPUS: before + " "}))).code == 200
    assert (await world.api.patch(path, _notes({names.NODE_GPUS: None}))).code == 200
    assert (await world.api.patch(path, _notes({names.NODE_GPUS: before}))).code == 403


def _notes(annotations: Object) -> Object:
    return {"metadata": {"annotations": annotations}}


def _check_refused(attempt: Answer, key: str) -> None:
    assert attempt.code == 403, attempt.body
    assert f"only gpushare writes {key}: leave it out of the pod" in attempt.message


def environments(pod: Object) -> dict[str, dict[str, str]]:
    """By container, what kubelet makes of its env: annotations as they are now, and of one name the last entry."""
    notes, spec = pod["metadata"]["annotations"], pod["spec"]
    return {
        container["name"]: {entry["name"]: _value(entry, notes) for entry in container.get("env", ())}
        for container in (*spec["containers"], *spec.get("initContainers", ()))
    }


def _value(entry: Object, notes: dict[str, str]) -> str:
    if "value" in entry:
        return str(entry["value"])
    path = entry["valueFrom"]["fieldRef"]["fieldPath"]
    return notes.get(path.removeprefix("metadata.annotations['").removesuffix("']"), "")


def _check_aliyun(told: dict[str, str], pod: Object) -> None:
    """What containers know with Aliyun's plugin, they know here, too."""
    for key in (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV):
        assert told[key] == pod["metadata"]["annotations"][key]


def _gpus(world: World, told: dict[str, str]) -> set[int]:
    """Those that a container sees."""
    (node,) = world.nodes
    known = {f"GPU-{node}-{i}": i for i in range(len(world.nodes[node]))}
    return {known[uuid] for uuid in told[names.VISIBLE_DEVICES].split(",")}


# Without them


@pytest.mark.parametrize("pinned", ["direct", "plugin"])
async def test_what_is_forged_before_the_binding_is_overwritten_by_it(
    world: World, tenant: Api, figures: Figures, pinned: str
) -> None:
    """Each says that it has one unit of GPU 1, where all of them would have room."""
    (node,) = await world.make_nodes(1, gpus=GPUS, pin=pinned)
    words: list[Object] = [
        {"name": f"forged-{i}", "containers": {"main": 3000}, "annotations": FORGED, "direct": pinned == "direct"}
        for i in range(6)
    ]
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        for asked in words:
            world.asked[asked["name"]] = asked
            await tenant.create(tenant.pods, objects.pod(**asked))
        pods = world.watch.pods
        await world.watch.until(
            "four bound and two refused",
            lambda: (
                sum(bool(pod_watch.node_of(p)) for p in pods.values()) == 4 and sum(map(_waits, pods.values())) == 2
            ),
            20,
        )
    world.check_capacity()
    bound = [pod for pod in pods.values() if pod_watch.node_of(pod)]
    for pod in bound:
        notes = pod["metadata"]["annotations"]
        ((gpu, units),) = json.loads(notes[names.ALLOCATION])["0"].items()
        true = {names.ALIYUN_IDX: gpu, names.ALIYUN_POD: str(units), names.ALIYUN_DEV: "8000"}
        if pinned == "direct":
            true[f"{names.VISIBLE_PREFIX}0"] = f"GPU-{node}-{gpu}"
        assert {key: notes[key] for key in true} == true
        assert notes[names.EXTENDER] != FORGED[names.EXTENDER]
    figures.say(
        f"annotations forged before the binding, pinned by {pinned}",
        f"{len(bound)} pods of 3000 on {len(GPUS)} GPUs of 8000, {len(pods) - len(bound)} refused; "
        "every binding says the truth",
    )


def _waits(pod: Object) -> bool:
    return not pod_watch.node_of(pod) and bool(pod_watch.refusal(pod))


def _forgeries(theirs: int) -> dict[str, Object]:
    """What a tenant may say of a pod of 5000 that has another GPU than this one."""
    visible = f"{names.VISIBLE_PREFIX}0"
    keys = (names.ALIYUN_IDX, names.ALLOCATION, visible)
    return {
        "that it holds less": {names.ALLOCATION: _all_on(1 - theirs, 1), names.ALIYUN_POD: "1"},
        "that it holds less elsewhere": {names.ALIYUN_IDX: str(theirs), names.ALLOCATION: _all_on(theirs, 1)},
        "a GPU there is not": {names.ALIYUN_IDX: "7", names.ALLOCATION: _all_on(7, 5000), visible: "GPU-7"},
        "all GPUs": {names.ALIYUN_IDX: "0,1", names.ALLOCATION: '{"0":{"0":2500,"1":2500}}', visible: "all"},
        "nothing of the kind": {names.ALIYUN_IDX: "x", names.ALLOCATION: "[" * 5000, visible: "\n"},
        "nothing at all": dict.fromkeys(keys),
    }


def _all_on(gpu: int, units: int) -> str:
    return json.dumps({"0": {str(gpu): units}})


@pytest.mark.parametrize("pinned", ["direct", "plugin"])
async def test_what_is_forged_after_the_binding_frees_nothing(
    world: World, tenant: Api, figures: Figures, pinned: str
) -> None:
    """Each of two pods has 5000 of a GPU of 8000, so that a third of 4000 has no place. Then one of them lies."""
    (node,) = await world.make_nodes(1, gpus=GPUS, pin=pinned)
    direct = pinned == "direct"
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        for name, units in (("liar", 5000), ("honest", 5000), ("third", 4000)):
            await world.make_pods({"name": name, "containers": {"main": units}, "direct": direct})
            await (world.watch.until_refused if name == "third" else world.watch.until_bound)(name, seconds=20)
        assert await _used(node) == [5000, 5000]
        theirs = int(world.watch.pods["honest"]["metadata"]["annotations"][names.ALIYUN_IDX])
        truth = world.watch.pods["liar"]["metadata"]["annotations"]
        said: dict[str, list[int]] = {}
        for lie, notes in _forgeries(theirs).items():
            assert (await tenant.patch(f"{tenant.pods}/liar", _notes(truth | notes))).code == 200
            await _until_seen(world, f"after-{len(said)}")
            said[lie] = await _used(node)
            assert all(units >= 5000 for units in said[lie]), f"says {lie}: {said[lie]}"
        moved = {
            names.ALIYUN_IDX: str(theirs),
            names.ALLOCATION: _all_on(theirs, 5000),
            f"{names.VISIBLE_PREFIX}0": f"GPU-{node}-{theirs}",
        }
        await tenant.patch(f"{tenant.pods}/liar", _notes(truth))
        assert (await tenant.patch(f"{tenant.pods}/liar", _notes(moved))).code == 200
        await _until_seen(world, "after-all")
        both = await _used(node)
        assert all(units >= 5000 for units in both), both
    assert not pod_watch.node_of(world.watch.pods["third"])
    figures.say(
        f"annotations forged after the binding, pinned by {pinned}",
        f"{len(said)} lies, none frees anything; used of 2 × 8000 (true: 5000, 5000): "
        + ", ".join(f"{lie} {units}" for lie, units in said.items())
        + f". That it has the other's GPU, which could be true: {both} for 10 s, then as it says",
    )


async def _used(node: str) -> list[int]:
    """Of each GPU, as the extender counts."""
    (view,) = (await _told(f"/inspect/{node}"))["nodes"]
    return [device["usedGPU"] for device in view["devs"]]


async def _until_seen(world: World, mark: str) -> None:
    """Whatever was written before now: what comes after it in the same watch has been seen."""
    await world.make_pods({"name": mark, "containers": {"main": 1}, "scheduler": "nobody"})
    path, patience_ends = f"/explain?namespace={world.api.namespace}&pod={mark}", time.monotonic() + PATIENCE
    while "error" in (told := await _told(path)):
        assert time.monotonic() < patience_ends, told
        await asyncio.sleep(0.05)


async def _told(path: str) -> Object:
    url = f"http://127.0.0.1:{shipped.EXTENDER_PORT}/gpushare-scheduler{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        told: Object = await response.json()
        return told
