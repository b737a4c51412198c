"""`gpushare node --sell=gpus` on a real kubelet, with a stock kube-scheduler and no extender.

One node with two GPUs. What NVIDIA's device plugin promises is promised here, and what it does not keep: an unhealthy
GPU withdraws all its replicas and returns, and a config is used when its content changes.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import events, selling
from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.installation import held
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_world import has_failed
from tests.e2e.harness.selling import POD, Selling, SellingWorld
from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.objects import Object
from tests.support.tasks import beside

GPUS = [16384, 16384]  # MiB
SHARED = "nvidia.com/gpu.shared"
SLICED = "version: v1\nsharing: {{timeSlicing: {{{more}resources: [{{name: nvidia.com/gpu, replicas: {n}}}]}}}}"
CONFIGS = {
    "default": "version: v1",
    "sliced": SLICED.format(n=4, more=""),
    "strict": SLICED.format(n=4, more="failRequestsGreaterThanOne: true, "),
    "renamed": SLICED.format(n=2, more="renameByDefault: true, "),
    "cdi": "flags: {nvidiaDevRoot: /run/nvidia/driver, plugin: {deviceListStrategy: [cdi-cri]}}",
}
DRIVER_NODES = "/run/nvidia/driver/dev"  # of the machine; its /dev is this machine's own
SPEC = "/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
TAINT = "nvidia.com/gpu=present:NoSchedule"
REFUSED = (
    'Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "nvidia.com/gpu": '
    "invalid request: maximum request size for shared resources is 1; found 2, which is unexpected"
)


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[Selling]:
    yield from held(selling.installed(node, GPUS, dict(CONFIGS)))


@pytest.fixture
async def world(installation: Selling, api: Api) -> AsyncIterator[SellingWorld]:
    shown = pod_watch.PodWatch(api)
    async with beside(shown.run()):
        made = SellingWorld(installation, api, shown)
        yield made
        await made.clean_up()


def pod(name: str, amount: int = 1) -> Object:
    return {"name": name, "containers": {"main": {"nvidia": amount}}}


async def on(world: SellingWorld, *pods: str) -> "Counter[str]":
    """How many of them see each GPU."""
    return Counter([",".join(await world.sees(name)) for name in pods])


async def test_a_pod_for_nvidias_plugin_runs_as_it_is_written(world: SellingWorld, installation: Selling) -> None:
    await installation.choose(None)
    await installation.sells(2)
    where = ("--namespace", world.api.namespace)
    await world.cluster.kubectl("taint", "--overwrite", "node", NODE, TAINT)
    try:
        await world.make_pods(pod("intolerant"))
        await world.cluster.kubectl("apply", *where, "-f", "-", given=POD)
        await world.until_running("pod-gpu-1")
        await world.watch.until_refused("intolerant")
        shown = await world.cluster.kubectl("exec", *where, "pod-gpu-1", "--", "env")
        told = dict(line.split("=", 1) for line in shown.splitlines())
        assert told[names.VISIBLE_DEVICES] in await installation.uuids()
    finally:
        await world.cluster.kubectl("taint", "node", NODE, f"{TAINT.partition('=')[0]}-")
    published = await installation.published()
    assert (published["pin"], published["sell"], published["state"]) == ("nvidia", "gpus", "ready")
    assert published["sold"] == [{"resource": "nvidia.com/gpu", "replicas": 1, "sharing": "none"}]


async def test_whole_gpus_are_given_to_one_pod_each_and_a_third_waits(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose(None)
    await installation.sells(2)
    await world.run(pod("one"), pod("two"))
    assert await on(world, "one", "two") == dict.fromkeys(await installation.uuids(), 1)
    await world.make_pods(pod("three"))
    await world.watch.until_refused("three")
    await world.delete("one")
    await world.until_running("three")


async def test_four_pods_share_each_gpu_and_two_replicas_may_be_asked(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose("sliced")
    await installation.sells(8)
    several = [f"share-{i}" for i in range(6)]
    await world.run(pod("both", 2), *map(pod, several))
    assert sorted(await world.sees("both")) == sorted(await installation.uuids())
    assert await on(world, *several) == dict.fromkeys(await installation.uuids(), 3)


async def test_two_of_a_shared_resource_are_refused_in_nvidias_words(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose("strict")
    await installation.until("the config is used", lambda: _in_force(world, "strict"))
    await installation.sells(8)
    await world.make_pods(pod("greedy", 2))
    await world.until_taken("greedy")
    greedy = world.watch.pods["greedy"]
    assert has_failed(greedy)
    assert (greedy["status"]["reason"], greedy["status"]["message"]) == (
        "UnexpectedAdmissionError", f"Pod was rejected: {REFUSED}",
    )  # fmt: skip
    await world.run(pod("modest"))


async def test_an_unhealthy_gpu_withdraws_all_its_replicas_and_recovery_returns_them(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose("sliced")
    await installation.sells(8)
    installation.report(79, 1)
    await installation.sells(4, of=8)
    assert await installation.is_unhealthy(1)
    several = [f"share-{i}" for i in range(4)]
    await world.run(*map(pod, several))
    healthy = (await installation.uuids())[0]
    assert await on(world, *several) == {healthy: 4}
    await installation.sells(8)
    await world.run(pod("later"))
    assert await world.sees("later") != [healthy]


async def test_pods_go_on_while_plugin_and_kubelet_restart_and_new_ones_are_served(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose("sliced")
    await installation.sells(8)
    await world.run(*(pod(f"before-{i}") for i in range(3)))
    before = world.containers_of(*(f"before-{i}" for i in range(3)))
    await installation.kill_component()
    await installation.until_restarted()
    await installation.sells(8)
    await world.run(pod("between"))
    await world.node.restart_kubelet()
    await installation.sells(8)
    await world.run(*(pod(f"after-{i}") for i in range(4)))
    assert world.containers_of(*(f"before-{i}" for i in range(3))) == before
    everybody = [*(f"before-{i}" for i in range(3)), "between", *(f"after-{i}" for i in range(4))]
    assert await on(world, *everybody) == dict.fromkeys(await installation.uuids(), 4)


async def test_a_config_is_used_when_the_label_or_the_content_changes_and_a_bad_one_is_not(
    world: SellingWorld, installation: Selling
) -> None:
    await installation.choose("sliced")
    await installation.sells(8)
    await installation.choose("renamed")
    await installation.sells(4, resource=SHARED)
    await installation.sells(0, of=8, resource=names.NVIDIA_GPU)
    await installation.choose("no-such")
    assert 'there is no config "no-such"' in await events.until_event(world, NODE, "ConfigNotUsed", "no-such")
    await installation.sells(4, resource=SHARED)
    await installation.configure(sliced=SLICED.format(n=6, more=""))
    await installation.choose("sliced")
    await installation.sells(12)
    await installation.configure(sliced="version: v1\nsharing: {timeslicing: {}}")
    assert "timeslicing" in await events.until_event(world, NODE, "ConfigNotUsed", "timeslicing")
    await installation.sells(12)
    await installation.configure(sliced=CONFIGS["sliced"])
    await installation.sells(8)
    await world.run(pod("again"))


async def test_a_cdi_spec_brings_its_gpus_device_node_into_a_container_and_no_other(
    world: SellingWorld, installation: Selling
) -> None:
    folder = world.node.machine.inside(DRIVER_NODES)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(GPUS)):
        os.mknod(folder / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # what it is does not matter
    await installation.choose("cdi")
    await installation.until("the config is used", lambda: _in_force(world, "cdi"))
    await installation.sells(2)
    spec = json.loads(world.node.machine.inside(SPEC).read_text())
    assert [device["name"] for device in spec["devices"]] == await installation.uuids()
    none: Object = {"name": "none", "containers": {"main": None}}
    await world.run(pod("one"), pod("two"), none)
    where, look = ("--namespace", world.api.namespace), ("--", "sh", "-c", "ls /dev | grep nvidia || true")
    seen = {name: await world.cluster.kubectl("exec", *where, name, *look) for name in ("one", "two", "none")}
    assert sorted([seen["one"], seen["two"]]) == ["nvidia0\n", "nvidia1\n"]
    assert seen["none"] == ""
    assert await world.sees("one") == ["void"]  # the runtime of NVIDIA has nothing to add


async def _in_force(world: SellingWorld, config: str) -> bool:
    """So the component says; two configs may offer the same devices."""
    where = ("--namespace", "kube-system", f"daemonset/{world.installation.daemonset}", "--tail=-1")
    lines = [json.loads(line) for line in (await world.cluster.kubectl("logs", *where)).splitlines()]
    used = [line["config"] for line in lines if line["msg"] == "config in force"]
    return used[-1:] == [config]
