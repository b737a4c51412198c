"""Labels and taints of nodes on a real API server: whose they are, who may change them, and what stays at the end."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.labels import applied
from gpushare.operator import node_writes, nodes
from gpushare.operator.desired.policy import DaemonSets, Flags, Part, Sharing, Spec
from gpushare.operator.managed import Node
from tests.e2e.harness.cluster import ADMIN, Cluster
from tests.node import world
from tests.support import api_client, wait
from tests.support.objects import Object

NAME = "labelled-a"
PCI = names.PCI_LABELS[1]
DRIVER, TOOLKIT = f"{names.DEPLOY_PREFIX}driver", f"{names.DEPLOY_PREFIX}container-toolkit"
ALL = {names.GPU_PRESENT: "true", names.SHARED: "true"} | {
    f"{names.DEPLOY_PREFIX}{one}": "true" for one in nodes.DEPLOYED
}
GPUS = Spec(sharing=Sharing(sell="gpus"))
TAINTING = Spec(daemonsets=DaemonSets(taint=True))
OUR_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


class Labelled:
    """One node, the operator's part, and a person with kubectl."""

    def __init__(self, cluster: Cluster, api: client.Api) -> None:
        self.cluster, self.api = cluster, api

    async def shown(self) -> Object:
        found: Object = await self.cluster.get(f"/api/v1/nodes/{NAME}")
        return found

    async def labels(self) -> dict[str, str]:
        """Without those of kubelet."""
        labels: dict[str, str] = (await self.shown())["metadata"].get("labels", {})
        return {key: value for key, value in labels.items() if key != PCI}

    async def taints(self) -> list[Object]:
        """Without those of the controllers, which come and go."""
        taints: list[Object] = (await self.shown())["spec"].get("taints", [])
        return [one for one in taints if not one["key"].startswith("node.kubernetes.io/")]

    async def cordoned(self) -> Object | None:
        """Its spec, as soon as a controller has seen the cordon."""
        spec: Object = (await self.shown())["spec"]
        return spec if any("timeAdded" in one for one in spec.get("taints", [])) else None

    async def read(self) -> Node:
        return await self.api.fetch(requests.read(resources.NODES, "", NAME), Node)

    async def settle(self, spec: Spec | None) -> int:
        """As often as there is something to write; returns how many writes that took."""
        for round in range(20):
            node = await self.read()
            todo = node_writes.writes(node, nodes.wanted(node, spec))
            if not todo:
                return round
            try:
                await self.api.send(todo[0])
            except ApiError as error:
                if error.status != 409:  # the controllers write to it, too
                    raise
        raise AssertionError("it does not come to an end")

    async def kubectl(self, *words: str) -> None:
        await self.cluster.kubectl(*words)

    async def label(self, *words: str) -> None:
        await self.kubectl("label", "node", NAME, "--overwrite", *words)


@pytest.fixture
async def labelled(cluster: Cluster, api: api_client.Api) -> AsyncIterator[Labelled]:
    await api.create("/api/v1/nodes", world.node(NAME))
    config = cluster.kubeconfig("labeller", cluster.tokens[ADMIN])
    try:
        async with client.connect(login.load(str(config), None, os.environ, Path.home())) as connected:
            made = Labelled(cluster, connected)
            await made.label(f"{PCI}=true")
            yield made
    finally:
        await api.call("DELETE", f"/api/v1/nodes/{NAME}")


async def test_a_gpu_node_is_labelled_once_and_left_alone(labelled: Labelled) -> None:
    assert await labelled.settle(Spec()) == 1
    assert await labelled.labels() == ALL
    assert await labelled.settle(Spec()) == 0


async def test_what_a_person_set_before_stays_for_ever(labelled: Labelled) -> None:
    by_hand = {names.SHARED: "gpus", DRIVER: "false", TOOLKIT: "true"}
    await labelled.label(*(f"{key}={value}" for key, value in by_hand.items()))
    for spec in (Spec(), GPUS, Spec()):
        await labelled.settle(spec)
        assert await labelled.labels() == ALL | by_hand
    await labelled.settle(None)
    assert await labelled.labels() == by_hand


async def test_what_a_person_changes_is_his_from_then_on(labelled: Labelled) -> None:
    await labelled.settle(Spec())
    by_hand = {names.SHARED: "gpus", DRIVER: "false"}
    await labelled.label(*(f"{key}={value}" for key, value in by_hand.items()))
    for spec in (Spec(), GPUS, Spec()):
        await labelled.settle(spec)
        assert await labelled.labels() == ALL | by_hand
    await labelled.settle(None)
    assert await labelled.labels() == by_hand


async def test_what_a_person_removes_comes_back(labelled: Labelled) -> None:
    await labelled.settle(Spec())
    await labelled.label(f"{DRIVER}-", f"{names.SHARED}-", f"{names.GPU_PRESENT}-")
    assert await labelled.settle(Spec()) == 1
    assert await labelled.labels() == ALL


async def test_a_gpu_that_others_confirmed_and_that_is_gone_is_not_there(labelled: Labelled) -> None:
    """NVIDIA's operator, for one, writes the same label: then it is of both."""
    await labelled.label(f"{names.GPU_PRESENT}=true")
    await labelled.settle(Spec())
    await labelled.label(f"{PCI}-")
    await labelled.settle(Spec())
    assert await labelled.labels() == {names.GPU_PRESENT: "false"}


async def test_an_empty_value_and_a_denied_gpu_are_put_right(labelled: Labelled) -> None:
    await labelled.settle(Spec())
    await labelled.label(f"{DRIVER}=", f"{names.GPU_PRESENT}=false")
    await labelled.settle(Spec())
    assert await labelled.labels() == ALL
    await labelled.settle(None)
    assert await labelled.labels() == {}


async def test_a_label_follows_the_policy(labelled: Labelled) -> None:
    await labelled.settle(Spec())
    assert await labelled.settle(GPUS) == 1
    assert await labelled.labels() == ALL | {names.SHARED: "gpus"}


async def test_gpus_go_and_come_back(labelled: Labelled) -> None:
    await labelled.settle(TAINTING)
    await labelled.label(f"{PCI}-")
    await labelled.settle(TAINTING)
    assert await labelled.labels() == {names.GPU_PRESENT: "false"}
    assert await labelled.taints() == []
    await labelled.label(f"{PCI}=true")
    await labelled.settle(TAINTING)
    assert await labelled.labels() == ALL
    assert await labelled.taints() == [OUR_TAINT]


async def test_a_person_can_keep_everything_off_a_node(labelled: Labelled) -> None:
    await labelled.settle(TAINTING)
    await labelled.label(f"{names.DEPLOY_NOTHING}=false")
    await labelled.settle(TAINTING)
    assert await labelled.labels() == {names.GPU_PRESENT: "true", names.DEPLOY_NOTHING: "false"}
    assert await labelled.taints() == []


async def test_our_taint_comes_goes_and_leaves_others_and_a_cordon(labelled: Labelled) -> None:
    await labelled.kubectl("taint", "node", NAME, "team=a:NoExecute")
    await labelled.kubectl("cordon", NAME)
    before = await wait.eventually_asked(labelled.cordoned, "the controller's taint")
    await labelled.settle(TAINTING)
    taints = await labelled.taints()
    assert [one["key"] for one in taints] == ["team", "nvidia.com/gpu"]
    await labelled.kubectl("taint", "node", NAME, "nvidia.com/gpu-")
    await labelled.settle(TAINTING)
    assert OUR_TAINT in await labelled.taints()
    await labelled.settle(None)
    after = await labelled.shown()
    assert after["spec"] == before, "with the times of its taints"
    assert names.TAINTED not in after["metadata"].get("annotations", {})


async def test_a_persons_taint_is_never_ours(labelled: Labelled) -> None:
    await labelled.kubectl("taint", "node", NAME, "nvidia.com/gpu=present:NoSchedule")
    for spec in (TAINTING, Spec(), None):
        await labelled.settle(spec)
        assert await labelled.taints() == [OUR_TAINT]


async def test_all_of_ours_is_taken_back_from_each_program(labelled: Labelled) -> None:
    before = await labelled.labels()
    await labelled.settle(Spec())
    node = await labelled.read()
    for manager, key in (
        (names.DISCOVERY_MANAGER, "nvidia.com/gpu.count"),
        (names.FINDER_MANAGER, names.PCI_LABELS[0]),
    ):
        await labelled.api.send(applied.apply(node.metadata, manager, {key: "true"}))
    checked = applied.apply(node.metadata, names.VALIDATOR_MANAGER, {}, {names.VALIDATION: "{}"})
    await labelled.api.send(checked)
    for request in node_writes.taken_back(await labelled.read()):
        await labelled.api.send(request)
    assert await labelled.labels() == before
    assert node_writes.taken_back(await labelled.read()) == []
    assert names.VALIDATION not in (await labelled.shown())["metadata"].get("annotations", {})


async def test_what_programs_said_that_are_switched_off_goes(labelled: Labelled) -> None:
    node = await labelled.read()
    count = "nvidia.com/gpu.count"
    for manager, key in ((names.DISCOVERY_MANAGER, count), (names.FINDER_MANAGER, names.PCI_LABELS[0])):
        await labelled.api.send(applied.apply(node.metadata, manager, {key: "true"}))
    await labelled.settle(Spec())
    assert {count, names.PCI_LABELS[0]} <= (await labelled.labels()).keys()
    await labelled.settle(Spec(gfd=Flags(enabled=False), finder=Part(enabled=False)))
    assert await labelled.labels() == ALL | {names.DISCOVERED: "false"}


async def test_a_node_that_is_gone_is_not_made_again(labelled: Labelled) -> None:
    node = await labelled.read()
    await labelled.kubectl("delete", "node", NAME)
    for request in node_writes.writes(node, nodes.wanted(node, TAINTING)):
        with pytest.raises(ApiError) as caught:
            await labelled.api.send(request)
        assert caught.value.status in (404, 409)
