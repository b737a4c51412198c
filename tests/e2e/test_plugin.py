"""The device plugin on a real kubelet: each container sees the GPU that its units are on, and annotations say so.

One node with GPUs of two sizes, in GiB as device-plugin-ds.yaml has it. kubelet chooses the units, the plugin steers
it: after each test all that runs is compared with its annotations, and when it is gone nothing may stay taken.
"""

import collections
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from gpushare.core.facts import names
from gpushare.core.facts.model import Unit
from tests.e2e.harness import aliyun_plugin, events, users
from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.installation import GUARD, OWN_NODE, Installation, for_module
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_churn import Churn, mixed
from tests.e2e.harness.node_world import NodeWorld, deployment, has_failed, is_running, open_world, replicas
from tests.e2e.harness.world import gpus_of
from tests.support.api_client import Api
from tests.support.nvml import state
from tests.support.objects import Object

GPUS = [16384, 16384, 24576, 24576]  # MiB
Gpus = tuple[list[int], Unit]
COMPONENT = ("device-plugin-rbac.yaml", "device-plugin-ds.yaml")
ACCOUNT = "system:serviceaccount:kube-system:gpushare-device-plugin"
PATIENCE = 60.0
HEALTH = ("ResourceHealthStatus", "ResourceHealthStatusMessage")
LARGE = 20_000  # units of one container


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[Installation]:
    yield from for_module(node, GPUS, COMPONENT, policies=(GUARD, OWN_NODE), unit="GiB")


@pytest.fixture
def gpus() -> Gpus:
    """Tests that want others say so."""
    return GPUS, "GiB"


@pytest.fixture
async def world(installation: Installation, api: Api, gpus: Gpus | None) -> AsyncIterator[NodeWorld]:
    if gpus is not None:
        await installation.have(*gpus)
    async with open_world(installation, api) as world:
        yield world


# What containers see


async def test_a_container_sees_its_gpu_and_what_containers_of_aliyuns_plugin_know(world: NodeWorld) -> None:
    await world.run({"name": "web", "containers": {"main": 3}})
    ((gpu, units),) = gpus_of(world.watch.pods["web"]).items()
    told = await world.environment("web")
    assert told[names.VISIBLE_DEVICES] == (await world.installation.uuids())[gpu]
    assert (units, told["ALIYUN_COM_GPU_MEM_CONTAINER"], told["ALIYUN_COM_GPU_MEM_POD"]) == (3, "3", "3")
    assert (told["ALIYUN_COM_GPU_MEM_IDX"], told["ALIYUN_COM_GPU_MEM_DEV"]) == (str(gpu), "16")


async def test_two_containers_that_need_two_gpus_see_one_each(world: NodeWorld) -> None:
    await world.run({"name": "vision", "containers": {"main": 20, "helper": 20, "plain": None}})
    main, helper = await world.sees("vision"), await world.sees("vision", "helper")
    assert {*main, *helper} == set((await world.installation.uuids())[2:])
    assert len(main) == len(helper) == 1
    assert names.VISIBLE_DEVICES not in await world.environment("vision", "plain")


async def test_an_init_container_has_the_gpu_of_its_app(world: NodeWorld) -> None:
    await world.run({"name": "prepared", "init": {"fetch": 20}, "containers": {"main": 2}})
    fetch, main = await world.sees("prepared", "fetch"), await world.sees("prepared")
    assert fetch == main
    assert list(gpus_of(world.watch.pods["prepared"]).values()) == [20]


async def test_a_sidecar_has_a_share_of_its_own_for_the_pods_life(world: NodeWorld) -> None:
    sidecar = {"proxy": {"mem": 20, "sidecar": True}}
    await world.run({"name": "served", "init": sidecar, "containers": {"main": 20}})
    assert {*await world.sees("served", "proxy"), *await world.sees("served")} == set(
        (await world.installation.uuids())[2:]
    )
    assert sorted(gpus_of(world.watch.pods["served"]).values()) == [20, 20]


async def test_one_container_over_two_gpus_sees_both(world: NodeWorld) -> None:
    await world.run({"name": "train", "split": 2, "containers": {"main": 40}})
    assert set(await world.sees("train")) == set((await world.installation.uuids())[2:])


async def test_a_whole_gpu_is_alone_beside_shared_ones(world: NodeWorld) -> None:
    shares: list[Object] = [{"name": f"share-{i}", "containers": {"main": 5}} for i in range(10)]
    await world.run({"name": "solo", "containers": {"main": {"count": 1}}}, *shares)
    alone = await world.sees("solo")
    assert len(alone) == 1
    for words in shares:
        assert not set(await world.sees(words["name"])) & set(alone)


async def test_a_tenants_own_variable_wins_and_somebody_says_so(world: NodeWorld) -> None:
    await world.run({"name": "greedy", "containers": {"main": {"mem": 1, "envs": ["=all"]}}})
    assert await world.sees("greedy") == ["all"]
    assert "its own NVIDIA_VISIBLE_DEVICES" in await events.until_event(world, "greedy", "WrongGPU")
    await world.delete("greedy")


async def test_a_pod_bound_by_hand_gets_a_gpu_that_has_room_and_is_counted_there(world: NodeWorld) -> None:
    stray = {"name": "stray", "containers": {"main": 10}, "node": NODE}
    await world.run({"name": "fills", "containers": {"main": 16}}, stray)
    await world.watch.until("said", lambda: names.ALLOCATION in _notes(world, "stray"), PATIENCE)
    await world.check()


# What happens to nodes


async def test_a_container_that_starts_again_sees_the_same(world: NodeWorld) -> None:
    await world.run({"name": "fragile", "containers": {"main": 3}})
    before = await world.sees("fragile")
    await world.kill_container("fragile")
    assert await world.sees("fragile") == before


async def test_pods_go_on_while_the_plugin_is_killed_and_what_they_hold_is_known_after_it(world: NodeWorld) -> None:
    holds: list[Object] = [{"name": f"holds-{units}", "containers": {"main": units}} for units in (9, 12, 20, 10)]
    await world.run(*holds, {"name": "prepared", "init": {"fetch": 6}, "containers": {"main": 2}})
    before = {words["name"]: world.containers_of(words["name"]) for words in holds}
    await world.installation.kill_component()
    await world.installation.until_restarted()
    await world.installation.until_published()
    await world.run(*({"name": f"later-{units}", "containers": {"main": units}} for units in (3, 5, 7)))
    assert {name: world.containers_of(name) for name in before} == before


async def test_pods_go_on_while_kubelet_restarts_and_the_plugin_is_there_again(world: NodeWorld) -> None:
    solo = {"name": "solo", "containers": {"main": {"count": 1}}}
    await world.run({"name": "steady", "containers": {"main": 9}}, solo)
    before = world.containers_of("steady", "solo")
    await world.node.restart_kubelet()
    await world.installation.until_published()
    await world.run({"name": "later", "containers": {"main": 6}}, {"name": "large", "containers": {"main": 20}})
    assert world.containers_of("steady", "solo") == before


async def test_plugin_and_kubelet_killed_together_come_back_together(world: NodeWorld) -> None:
    await world.run({"name": "steady", "containers": {"main": 9}})
    before = world.containers_of("steady")
    await world.node.stop_kubelet()
    await world.installation.kill_component()
    await world.node.start_kubelet()
    await world.installation.until_published()
    await world.run({"name": "later", "containers": {"main": 6}}, {"name": "large", "containers": {"main": 20}})
    assert world.containers_of("steady") == before


async def test_after_a_reboot_controllers_replace_what_kubelet_fails_and_nothing_leaks(world: NodeWorld) -> None:
    async with replicas(world, 6, {"name": "web", "containers": {"main": 5}}):
        await world.run({"name": "solo", "containers": {"main": {"count": 1}}})  # it has no controller
        before = set(world.watch.pods)
        await world.node.reboot()
        # Containers that are not there are started before there is a plugin to ask: kubelet gives their pods up.
        await world.watch.until("given up", lambda: _names(world, has_failed) == before, PATIENCE)
        await world.watch.until("replaced", lambda: len(_names(world, is_running)) == 6, PATIENCE)


async def test_a_container_gets_its_gpu_while_the_api_server_is_away(world: NodeWorld) -> None:
    """kubelet asks for a pod that nobody else knows of: it goes where there is room, beside all that is held."""
    fills: list[Object] = [
        {"name": f"fills-{i}", "containers": {"main": units}} for i, units in enumerate((16, 16, 20))
    ]
    await world.run(*fills)
    (free,) = {0, 1, 2, 3} - {gpu for words in fills for gpu in gpus_of(world.watch.pods[words["name"]])}
    pod = world.pod_of({"name": "static", "containers": {"main": 10}})
    pod["metadata"]["namespace"] = world.api.namespace
    name = f"static-{NODE}"
    with world.node.static_pod(pod):
        async with world.cluster.away():
            await world.installation.until("it runs", lambda: world.node.runs(name), PATIENCE)
            told = await world.node.ask_kubelet(f"containerLogs/{world.api.namespace}/{name}/main")
            assert f"{names.VISIBLE_DEVICES}={state.uuid(free)}\n" in told
        await world.until_running(name)
        await world.watch.until("said", lambda: names.ALLOCATION in _notes(world, name), PATIENCE)
        await world.check()
    await world.watch.until("gone", lambda: name not in world.watch.pods, PATIENCE)


async def test_what_somebody_wipes_off_the_node_is_said_again(world: NodeWorld) -> None:
    await world.run({"name": "steady", "containers": {"main": 3}})
    await world.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {names.NODE_GPUS: None}}})
    gone = dict.fromkeys((names.GPU_MEM, names.GPU_COUNT))
    await world.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": gone, "allocatable": gone}})
    await world.installation.until_published()
    await world.run({"name": "later", "containers": {"main": 3}})


# Much of it


async def test_pods_come_and_go_and_a_gpu_becomes_unhealthy_and_healthy_again(
    world: NodeWorld, figures: Figures
) -> None:
    churn = Churn(world, seconds=70, at_once=18, pods=mixed(6), steady=20)
    await churn.run(figures)
    assert len(churn.starts) >= 50


async def test_forty_equal_pods_at_once_fill_four_gpus_to_the_last_unit(world: NodeWorld) -> None:
    pods = [f"pod-{i}" for i in range(40)]
    await world.run(*({"name": name, "containers": {"main": 2}} for name in pods))
    await world.check()
    seen = collections.Counter([uuid for name in pods for uuid in await world.sees(name)])
    assert [seen[uuid] for uuid in await world.installation.uuids()] == [8, 8, 12, 12]


# Other GPUs


async def test_a_lost_gpu_keeps_its_pods_and_the_others_keep_theirs(world: NodeWorld) -> None:
    """Its place among the driver's GPUs is another's now, also for a plugin that starts again."""
    amounts = {"lost": 16, "small": 10, "large": 20, "larger": 22}
    await world.run(*({"name": name, "containers": {"main": units}} for name, units in amounts.items()))
    before = {name: world.containers_of(name) for name in amounts}
    (lost,) = gpus_of(world.watch.pods["lost"])
    world.installation.lose(lost)
    try:
        left = sum(world.installation.gpus)  # all of the lost one is held
        await world.installation.until("it is unhealthy", lambda: world.installation.is_unhealthy(lost), PATIENCE)
        await world.installation.kill_component()
        await world.installation.until_restarted()
        await world.installation.until(f"the node offers {left}", lambda: world.installation.offers(left), PATIENCE)
        assert await world.installation.is_unhealthy(lost)
        await world.run(*({"name": f"more-{units}", "containers": {"main": units}} for units in (6, 4, 2)))
        await world.check()
        assert {name: world.containers_of(name) for name in amounts} == before
        await world.delete("lost")
        left -= world.installation.gpus[lost]
        await world.installation.until(f"the node offers {left}", lambda: world.installation.offers(left), PATIENCE)
        await world.clean_up()
    finally:
        world.installation.forget()


@pytest.mark.parametrize("gpus", [(GPUS, "MiB")], ids=["MiB"])
async def test_in_mib_the_readmes_deployment_and_20000_units_run_whatever_kubelet_writes_about_them(
    world: NodeWorld, figures: Figures
) -> None:
    try:
        for gates in ({}, dict.fromkeys(HEALTH, False)):  # both are on by default
            if gates:
                # With them a kubelet that remembers 20,000 units is busy for ten minutes when it starts.
                await world.node.restart_kubelet(gates, forgetting=True)
                await world.installation.until_published()
            async with deployment(world) as pods:
                assert len(pods) == 3
            began = time.monotonic()
            await world.run({"name": "large", "containers": {"main": LARGE}})
            took = time.monotonic() - began
            await world.check()
            size = len(json.dumps(world.watch.pods["large"]))
            title = f"a container of {LARGE} units by device plugin, ResourceHealthStatus {'off' if gates else 'on'}"
            figures.say(title, f"runs after {took:.1f} s, the pod has {size} bytes")
            await world.clean_up()
    finally:
        await world.node.restart_kubelet({}, forgetting=True)


@pytest.mark.parametrize("gpus", [([16384], "GiB")], ids=["16-GiB"])
async def test_a_node_with_one_gpu_shares_it_and_gives_it_wholly(world: NodeWorld) -> None:
    await world.run({"name": "one", "containers": {"main": 10}}, {"name": "other", "containers": {"main": 6}})
    await world.make_pods({"name": "solo", "containers": {"main": {"count": 1}}})
    await world.watch.until_refused("solo")
    await world.check()
    await world.delete("one", "other")
    await world.until_running("solo")


# In place of Aliyun's plugin


@pytest.mark.parametrize("gpus", [None], ids=["as-they-are"])
async def test_pods_of_aliyuns_plugin_run_on_under_ours_and_their_memory_stays_theirs(world: NodeWorld) -> None:
    await world.installation.uninstall()
    await world.node.restart_kubelet(forgetting=True)
    world.installation.show([16384] * 4)
    try:
        async with aliyun_plugin.running(world, 16, 4):
            await world.run(*({"name": f"old-{units}", "containers": {"main": units}} for units in (10, 12, 6)))
            assigned = {"metadata": {"annotations": {names.ALIYUN_ASSIGNED: "true"}}}
            async with users.acting_as(world, ACCOUNT) as plugin:
                for name in list(world.watch.pods):  # what Aliyun's plugin does when it gives a pod its GPU
                    assert (await plugin.patch(f"{world.api.pods}/{name}", assigned)).code == 200
        old = {name: (world.containers_of(name), gpus_of(pod)) for name, pod in world.watch.pods.items()}
        await world.installation.install()
        await world.node.restart_kubelet()
        await world.installation.until_published()
        new = ["new-4", "new-16", "new-16-too"]  # all that is left: the rest of one GPU, and two whole ones
        await world.run(*({"name": name, "containers": {"main": int(name.split("-")[1])}} for name in new))
        for name in new:
            await world.check_pod(name)
        given = collections.Counter[int]()
        for pod in world.watch.pods.values():
            given.update(gpus_of(pod))
        assert given == {0: 16, 1: 16, 2: 16, 3: 16}
        assert {name: (world.containers_of(name), gpus_of(world.watch.pods[name])) for name in old} == old
        await world.make_pods({"name": "waits", "containers": {"main": 10}})
        await world.watch.until_refused("waits")
        await world.delete("old-10")
        await world.until_running("waits")
        await world.delete("old-12", "old-6")
        await world.run({"name": "last", "containers": {"main": 12}})
        await world.check()
        await world.clean_up()
    finally:
        world.installation.forget()


def _names(world: NodeWorld, like: Callable[[Object], bool]) -> set[str]:
    return {name for name, pod in world.watch.pods.items() if like(pod)}


def _notes(world: NodeWorld, pod: str) -> Object:
    return dict(world.watch.pods[pod]["metadata"].get("annotations", {}))
