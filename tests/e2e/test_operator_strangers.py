"""`gpushare operator` where others were before: what they made stays as it is, and what is in the way is said."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import installation, operating
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.operating import DAEMON_SETS, NAMESPACE, POLICIES, POLICY, Operating
from tests.support.objects import Object

pytestmark = pytest.mark.own_cluster

RUNTIME_CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-finder"
HANDED_OVER = "=".join(names.MANAGED_BY)


@pytest.fixture(scope="module")
def prepared(cluster: Cluster) -> Iterator[Operating]:
    yield from installation.held(operating.prepared(cluster))


@pytest.fixture
async def operator(prepared: Operating) -> AsyncIterator[Operating]:
    async with prepared.with_gpu_node("strange-a"):
        yield prepared


async def made_by_hand(operator: Operating, body: Object) -> None:
    await operator.cluster.kubectl("create", "-f", "-", given=json.dumps(body))


async def said(operator: Operating, words: str) -> bool:
    return words in await operator.message()


async def is_state(operator: Operating, component: str, state: str) -> bool:
    return (await operator.component(component)).get("state") == state


async def test_a_runtime_class_that_nvidia_made_stays_as_it_is(operator: Operating) -> None:
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "theirs"}
    await made_by_hand(operator, body)
    before = await operator.cluster.get(RUNTIME_CLASS)
    try:
        async with operator.running():
            await operator.policy()
            await operator.until("it counts", lambda: is_state(operator, "runtime-class", "ready"))
            await operator.delete()
            await operator.gone()
        assert await operator.cluster.get(RUNTIME_CLASS) == before
    finally:
        await operator.cluster.kubectl("delete", "runtimeclass", "nvidia")


async def test_what_is_in_the_way_is_said_and_can_be_handed_over(operator: Operating) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    await made_by_hand(operator, {**role, "metadata": {"name": "gpushare-finder"}, "rules": []})
    before = await operator.cluster.get(CLUSTER_ROLE)
    async with operator.running():
        await operator.policy()
        words = (
            "finder: ClusterRole gpushare-finder is there already, made by kubectl-create: delete it, or hand it over"
        )
        await operator.until("the stranger is named", lambda: said(operator, words))
        assert await operator.cluster.get(CLUSTER_ROLE) == before
        await operator.cluster.kubectl("label", "clusterrole", "gpushare-finder", HANDED_OVER)

        async def is_ours() -> bool:
            return bool((await operator.cluster.get(CLUSTER_ROLE))["rules"])

        await operator.until("it is ours", is_ours)
        await operator.until("nothing is in the way", lambda: is_free(operator))


async def is_free(operator: Operating) -> bool:
    return "is there already" not in await operator.message()


async def test_a_policy_with_a_name_only_and_deleted_without_its_objects(operator: Operating) -> None:
    """The next one takes them over, and takes them away."""
    async with operator.running():
        await operator.policy()
        await operator.until("the node part", lambda: has_node_part(operator))
        old = (await operator.cluster.get(f"{DAEMON_SETS}/gpushare-node"))["metadata"]["uid"]
        await operator.cluster.kubectl("delete", "clusterpolicy", POLICY, "--cascade=orphan", "--timeout=90s")
        assert (await operator.cluster.get(f"{DAEMON_SETS}/gpushare-node"))["metadata"].get("ownerReferences") is None
        metadata_only = {"apiVersion": "gpushare.io/v1alpha1", "kind": "ClusterPolicy", "metadata": {"name": "next"}}
        await made_by_hand(operator, metadata_only)
        await operator.until("it is adopted", lambda: is_owned_by(operator, "next"))
        assert (await operator.cluster.get(f"{DAEMON_SETS}/gpushare-node"))["metadata"]["uid"] == old


async def has_node_part(operator: Operating) -> bool:
    return await operator.find(f"{DAEMON_SETS}/gpushare-node") is not None


async def is_owned_by(operator: Operating, policy: str) -> bool:
    owners = (await operator.cluster.get(f"{DAEMON_SETS}/gpushare-node"))["metadata"].get("ownerReferences") or ()
    return [one["name"] for one in owners] == [policy]


async def test_without_an_operator_uninstall_does_its_work(operator: Operating) -> None:
    async with operator.running():
        await operator.policy()
        await operator.until("the node part", lambda: has_node_part(operator))
    await operator.once("--uninstall", "--keep-crds", "--namespace", NAMESPACE)
    assert await operator.find(f"{POLICIES}/{POLICY}") is None
    assert not await has_node_part(operator)
    assert names.GPU_PRESENT not in await operator.labels("strange-a")
