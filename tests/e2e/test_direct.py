"""The binding is the pin, on a real kubelet: every container sees exactly the GPUs that its binding says.

One node with GPUs of two sizes; extender, node component and policies are those of deploy/. After each test all that
runs is compared with its annotations, and when it is gone nothing may stay taken.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from gpushare.core.explain.event_texts import UNASKED_GPU
from gpushare.core.facts import names
from tests.e2e.harness import events, shipped
from tests.e2e.harness.cluster import ADMIN, NODE
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.images import EXAMPLES, SMALL
from tests.e2e.harness.installation import GUARD, OWN_NODE, PIN, Installation, for_module
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_churn import Churn, mixed
from tests.e2e.harness.node_world import STAY, NodeWorld, deployment, open_world
from tests.e2e.harness.world import gpus_of
from tests.e2e.test_admission import in_force
from tests.e2e.test_unasked import UNASKED, voids
from tests.support.api_client import Api
from tests.support.objects import Object

GPUS = [16276, 16276, 40536, 40536]
COMPONENT = ("node-ds.yaml",)
PATIENCE = 60.0
LARGEST_POD = 32_000  # bytes, of a pod that has 81,920 units


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[Installation]:
    yield from for_module(node, GPUS, COMPONENT, policies=(PIN, GUARD, OWN_NODE))


@pytest.fixture
async def world(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    await installation.have(GPUS, "MiB")
    async with open_world(installation, api) as world:
        yield world


# What Prometheus sees


async def test_extender_and_node_answer_prometheus_at_the_addresses_of_their_pods(world: NodeWorld) -> None:
    cluster = world.cluster
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/pods?labelSelector=app=gpushare"
    found = {}
    for pod in (await cluster.get(path))["items"]:
        (container,) = pod["spec"]["containers"]
        (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "metrics")
        url = f"https://{pod['status']['podIP']}:{port}/metrics"
        async with aiohttp.ClientSession() as session:
            async with session.get(url, ssl=False) as response:
                assert response.status == 401
            bearer = {"Authorization": f"Bearer {cluster.tokens[ADMIN]}"}
            async with session.get(url, ssl=False, headers=bearer) as response:
                assert response.status == 200
                found[container["name"]] = await response.text()
    assert set(found) == {shipped.EXTENDER, "gpushare-node"}
    assert "gpushare_request_seconds" in found[shipped.EXTENDER]
    assert "gpushare_gpu_memory_total_bytes" in found["gpushare-node"]


# What containers see


async def test_the_deployment_of_the_readme_runs_and_each_container_sees_its_gpu(world: NodeWorld) -> None:
    async with deployment(world) as pods:
        assert len(pods) == 3
        assert {gpu for pod in pods.values() for gpu in gpus_of(pod)} == {0}


async def test_two_containers_that_need_two_gpus_see_one_each(world: NodeWorld) -> None:
    await world.run({"name": "vision", "containers": {"main": 30000, "helper": 30000, "plain": None}})
    main, helper = await world.sees("vision"), await world.sees("vision", "helper")
    assert {*main, *helper} == set((await world.installation.uuids())[2:])
    assert len(main) == len(helper) == 1
    assert names.VISIBLE_DEVICES not in await world.environment("vision", "plain")


async def test_an_init_container_may_have_another_gpu_than_its_app(world: NodeWorld) -> None:
    await world.run({"name": "prepared", "init": {"fetch": 20000}, "containers": {"main": 2000}})
    uuids = await world.installation.uuids()
    assert set(await world.sees("prepared", "main")) <= set(uuids[:2])
    assert set(await world.sees("prepared", "fetch")) <= set(uuids[2:])


async def test_a_sidecar_has_a_share_of_its_own_for_the_pods_life(world: NodeWorld) -> None:
    sidecar = {"proxy": {"mem": 30000, "sidecar": True}}
    await world.run({"name": "served", "init": sidecar, "containers": {"main": 30000}})
    assert set(await world.sees("served", "proxy")) | set(await world.sees("served")) == set(
        (await world.installation.uuids())[2:]
    )
    assert sorted(gpus_of(world.watch.pods["served"]).values()) == [30000, 30000]


async def test_one_container_over_two_gpus_sees_both(world: NodeWorld) -> None:
    await world.run({"name": "train", "split": 2, "containers": {"main": 60000}})
    assert set(await world.sees("train")) == set((await world.installation.uuids())[2:])


async def test_a_whole_gpu_is_alone_beside_shared_ones(world: NodeWorld) -> None:
    shares: list[Object] = [{"name": f"share-{i}", "containers": {"main": 5000}} for i in range(10)]
    await world.run({"name": "solo", "containers": {"main": {"count": 1}}}, *shares)
    alone = await world.sees("solo")
    assert len(alone) == 1
    for words in shares:
        assert not set(await world.sees(words["name"])) & set(alone)


async def test_a_tenants_own_variable_has_no_effect(world: NodeWorld) -> None:
    await world.run({"name": "greedy", "containers": {"main": {"mem": 1000, "envs": ["=all"]}}})
    assert len(await world.sees("greedy")) == 1


async def test_a_pod_bound_by_hand_sees_no_gpu_and_takes_nothing_from_others(world: NodeWorld) -> None:
    await world.run({"name": "stray", "containers": {"main": 2 * max(GPUS)}, "node": NODE})
    assert (await world.environment("stray"))[names.VISIBLE_DEVICES] == ""
    await world.run(
        {"name": "solo", "containers": {"main": {"count": 3}}}, {"name": "share", "containers": {"main": 16276}}
    )
    seen = [*await world.sees("solo"), *await world.sees("share")]
    assert sorted(seen) == sorted(await world.installation.uuids())
    pod = f"Pod {world.api.namespace}/stray"
    assert "sees no GPU and counts on none" in await events.until_event(world, NODE, "BoundByHand", pod)


async def test_what_its_owner_writes_on_a_running_pod_closes_no_gpu_to_others(world: NodeWorld) -> None:
    await world.run({"name": "mine", "containers": {"main": {"count": 1}}}, {"name": "too", "containers": {"main": 9}})
    broken = {names.POLICY: "x", names.GPU_COUNT: "7", names.MEMORY_UNIT: "x"}
    for pod in ("mine", "too"):
        await world.patch(
            f"{world.api.pods}/{pod}", {"metadata": {"annotations": broken, "labels": {names.GPU_COUNT: "7"}}}
        )
    await world.run({"name": "others", "containers": {"main": {"count": 2}}})
    seen = [await world.sees(pod) for pod in ("mine", "too", "others")]
    assert sorted(uuid for uuids in seen for uuid in uuids) == sorted(await world.installation.uuids())


async def test_a_unit_that_changes_under_a_running_pod_is_kept_until_it_has_ended(world: NodeWorld) -> None:
    await world.installation.have(GPUS, "GiB")
    await world.run({"name": "gib", "unit": "GiB", "containers": {"main": 15}})
    first = await world.sees("gib")
    await world.installation.count_in("MiB")
    assert "so this node counts GiB until they are gone" in await events.until_event(world, NODE, "UnitKept")
    assert [gpu["total"] for gpu in (await world.installation.published())["gpus"]] == [15, 15, 39, 39]
    await world.make_pods({"name": "mib", "unit": "MiB", "containers": {"main": 16000}})
    await world.watch.until_refused("mib")
    await world.run({"name": "beside", "unit": "GiB", "containers": {"main": 15}})
    assert await world.sees("beside") != first
    await world.delete("gib", "beside")
    await world.installation.until_published()
    await world.until_running("mib")
    assert gpus_of(world.watch.pods["mib"]) == {0: 16000}


TAKES: Object = {"envs": ["=all"]}  # and asks for nothing


async def test_who_asks_nothing_sees_all_gpus_and_is_found_and_with_the_policy_sees_none(
    world: NodeWorld, figures: Figures
) -> None:
    await world.run({"name": "free", "containers": {"main": TAKES}})
    await _run_cuda(world, "image")
    assert [await _told(world, name) for name in ("free", "image")] == ["all", "all"]
    await _until_found(world, "free")
    async with in_force(world, UNASKED, voids):
        await world.run({"name": "tame", "init": {"fetch": TAKES}, "containers": {"main": TAKES, "asks": 1}})
        await _run_cuda(world, "cuda")
        await _debug(world, "tame")
        containers = (("tame", "main"), ("tame", "fetch"), ("cuda", "main"), ("tame", "debug"))
        assert [await _told(world, *place) for place in containers] == ["void"] * 4
        assert len(await world.sees("tame", "asks")) == 1
    figures.say(
        "containers that ask for no GPU, on a real kubelet",
        f"own variable and image's variable: all, event {UNASKED_GPU}; with deploy/unasked.yaml: void in app, init and "
        "ephemeral containers and beside one that asks",
    )


async def _told(world: NodeWorld, pod: str, container: str = "main") -> str:
    return (await world.environment(pod, container))[names.VISIBLE_DEVICES]


async def _run_cuda(world: NodeWorld, name: str) -> None:
    """A pod that says nothing itself: its image does, as CUDA images do."""
    made = world.pod_of({"name": name})
    made["spec"]["containers"][0]["image"] = EXAMPLES
    await world.api.create(world.api.pods, made)
    await world.until_running(name)


async def _debug(world: NodeWorld, pod: str) -> None:
    """As kubectl debug does it."""
    shell = {"name": "debug", "image": SMALL, "command": STAY, "env": [{"name": names.VISIBLE_DEVICES, "value": "all"}]}
    change = {"spec": {"ephemeralContainers": [shell]}}
    path = f"{world.api.pods}/{pod}/ephemeralcontainers"
    answer = await world.api.patch(path, change, "application/strategic-merge-patch+json")
    assert answer.code == 200, answer.body

    def runs() -> bool:
        statuses = world.watch.pods[pod]["status"].get("ephemeralContainerStatuses", ())
        return any("running" in status["state"] for status in statuses)

    await world.watch.until("the ephemeral container runs", runs, PATIENCE)


async def _until_found(world: NodeWorld, pod: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            events = (await world.api.get(world.api.events)).body["items"]
            if (UNASKED_GPU, pod) in [(event["reason"], event["involvedObject"]["name"]) for event in events]:
                return
            await asyncio.sleep(0.1)


# What happens to nodes


async def test_a_container_that_starts_again_sees_the_same(world: NodeWorld) -> None:
    await world.run({"name": "fragile", "containers": {"main": 3000}})
    before = await world.sees("fragile")
    await world.kill_container("fragile")
    assert await world.sees("fragile") == before


async def test_a_restart_of_kubelet_changes_nothing_and_stops_nobody(world: NodeWorld) -> None:
    await world.run({"name": "steady", "containers": {"main": 3000}})
    containers = world.containers_of("steady")
    await world.node.restart_kubelet()
    await world.run({"name": "later", "containers": {"main": 3000}})
    assert world.containers_of("steady") == containers
    assert await world.installation.is_published()


async def test_pods_come_and_go_while_the_node_component_is_killed(world: NodeWorld) -> None:
    await world.run({"name": "before", "containers": {"main": 3000}})
    containers = world.containers_of("before")
    await world.installation.kill_component()
    await world.run({"name": "meanwhile", "containers": {"main": 3000}})
    await world.delete("meanwhile")
    await world.installation.until_restarted()
    await world.run({"name": "after", "containers": {"main": 3000}})
    assert world.containers_of("before") == containers


async def test_capacity_that_is_wiped_comes_back(world: NodeWorld) -> None:
    await world.run({"name": "steady", "containers": {"main": 3000}})
    gone = dict.fromkeys((names.GPU_MEM, names.GPU_COUNT))
    await world.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": gone, "allocatable": gone}})
    await world.installation.until_published()
    await world.run({"name": "later", "containers": {"main": 3000}})


# Much of it


async def test_pods_come_and_go_for_two_minutes_and_a_gpu_becomes_unhealthy_and_healthy_again(
    world: NodeWorld, figures: Figures
) -> None:
    churn = Churn(world, seconds=120, at_once=25, pods=mixed(6000), steady=20000)
    await churn.run(figures)
    assert len(churn.starts) >= 100


async def test_eight_gpus_of_80_gib_are_counted_in_mib(world: NodeWorld) -> None:
    await world.installation.have([81920] * 8, "MiB")
    large: list[Object] = [{"name": f"llm-{i}", "containers": {"main": 81920}} for i in range(8)]
    await world.run(*large)
    seen = [uuid for words in large for uuid in await world.sees(words["name"])]
    assert sorted(seen) == sorted(await world.installation.uuids())
    assert len(json.dumps(world.watch.pods["llm-0"])) < LARGEST_POD
