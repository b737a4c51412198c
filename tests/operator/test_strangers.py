"""Objects that are there already and are not ours: never taken over, never deleted, and said."""

from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.kube.resources import Resource
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec
from tests.operator import operated as world
from tests.operator.operated import DAEMON_SETS, NS, Operated

Object = dict[str, Any]

RUNTIME = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False).item("", "nvidia")
NODE_PART = DAEMON_SETS.item(NS, "gpushare-node")
BY_HAND = {"manager": "kubectl-create", "operation": "Update"}


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> tuple[Component, ...]:
    runtime = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia",
    }  # fmt: skip
    return (Component("runtime-class", (runtime,)), *world.build(spec, cluster, manifests))


@pytest.fixture
async def operated() -> Operated:
    made = Operated(build)
    made.policy()
    return made


def stranger(path: str, operated: Operated, **content: Any) -> Object:
    return operated.api.put(path, {"metadata": {"managedFields": [BY_HAND], "labels": {"app": "x"}}, **content})


async def test_a_runtime_class_of_somebody_else_counts_and_stays(operated: Operated) -> None:
    before = stranger(RUNTIME, operated, handler="others")
    await operated.settle()
    assert operated.status()["state"] == "ready"
    operated.delete()
    await operated.settle()
    assert operated.api.objects[RUNTIME] == before


async def test_any_other_object_is_named_with_its_maker_and_the_way(operated: Operated) -> None:
    before = stranger(NODE_PART, operated)
    await operated.settle()
    assert operated.api.objects[NODE_PART] == before
    assert operated.message() == (
        "node-part: DaemonSet gpushare-node is there already, made by kubectl-create: delete it, or hand it over: "
        "kubectl label daemonset -n gpu-operator gpushare-node --overwrite "
        "app.kubernetes.io/managed-by=gpushare-operator"
    )
    states = {one["name"]: one["state"] for one in operated.status()["components"]}
    assert states["node-part"] == "notReady"
    assert states["runtime-class"] == "ready"


async def test_a_stranger_is_looked_at_now_and_then_and_not_again_and_again(operated: Operated) -> None:
    stranger(NODE_PART, operated)
    assert await operated.passes(), "to try again at once would be of no use"
    assert operated.reconciler.again == 30
    del operated.api.objects[NODE_PART]
    operated.replace()
    await operated.settle()
    assert operated.reconciler.again is None
    assert operated.status()["state"] == "ready"


async def test_an_object_that_was_handed_over_is_ours(operated: Operated) -> None:
    stranger(NODE_PART, operated)
    await operated.settle()
    metadata = {"namespace": NS, "managedFields": [BY_HAND], "labels": dict([names.MANAGED_BY])}
    operated.api.put(NODE_PART, {"metadata": metadata})
    await operated.settle()
    assert operated.status()["state"] == "ready"
    operated.delete()
    await operated.settle()
    assert NODE_PART not in operated.api.objects


async def test_our_label_taken_from_an_object_is_put_back(operated: Operated) -> None:
    await operated.settle()
    del operated.api.objects[NODE_PART]["metadata"]["labels"][names.MANAGED_BY[0]]
    await operated.settle()
    assert operated.api.objects[NODE_PART]["metadata"]["labels"][names.MANAGED_BY[0]] == names.MANAGED_BY[1]


async def test_what_an_older_policy_of_this_name_owned_is_adopted(operated: Operated) -> None:
    await operated.settle()
    operated.api.objects[NODE_PART]["metadata"]["ownerReferences"][0]["uid"] = "of-an-older-one"
    await operated.settle()
    (owner,) = operated.api.objects[NODE_PART]["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-cluster-policy"
