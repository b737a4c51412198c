"""`kubectl delete clusterpolicy --cascade=orphan`: the garbage collector takes the owner from all objects."""

import pytest

from gpushare.core.facts import names
from gpushare.kube import resources
from tests.operator.operated import DAEMON_SETS, NS, POLICY, Operated

NODE_PART = DAEMON_SETS.item(NS, "gpushare-node")


@pytest.fixture
async def operated() -> Operated:
    made = Operated()
    made.node("a")
    made.policy(mps={"enabled": True})
    await made.settle()
    made.pod("gpushare-node-x")
    return made


def orphan(operated: Operated) -> None:
    for found in operated.api.objects.values():
        found["metadata"].pop("ownerReferences", None)


async def test_a_policy_that_is_deleted_without_its_objects_leaves_all_and_goes_at_once(operated: Operated) -> None:
    operated.shown()["metadata"]["finalizers"] += ["orphan"]
    operated.delete()
    await operated.settle()
    assert operated.shown()["metadata"]["finalizers"] == ["orphan"]
    assert operated.has("gpushare-node")
    assert operated.labels("a")[names.GPU_PRESENT] == "true"


async def test_they_stay_also_if_the_garbage_collector_is_done_before_the_next_pass(operated: Operated) -> None:
    operated.shown()["metadata"]["finalizers"] += ["orphan"]
    operated.delete()
    operated.see()
    orphan(operated)
    operated.shown()["metadata"]["finalizers"].remove("orphan")
    await operated.settle()
    assert operated.shown()["metadata"]["finalizers"] == []
    assert operated.has("gpushare-node")


async def test_orphans_are_taken_out_by_a_policy_that_is_still_being_deleted(operated: Operated) -> None:
    """Nothing has ever said that they should stay."""
    operated.delete()
    orphan(operated)
    await operated.settle()
    assert not operated.has("gpushare-node")
    del operated.api.objects[resources.PODS.item(NS, "gpushare-node-x")]
    await operated.settle()
    assert operated.shown()["metadata"]["finalizers"] == []
    assert [path for path in operated.api.objects if "/nodes/" not in path] == [
        resources.CLUSTER_POLICIES.item("", POLICY)
    ]  # fmt: skip


async def test_the_next_policy_adopts_orphans_and_removes_what_it_does_not_want(operated: Operated) -> None:
    orphan(operated)
    del operated.api.objects[resources.CLUSTER_POLICIES.item("", POLICY)]
    operated.policy("next")
    await operated.settle()
    (owner,) = operated.api.objects[NODE_PART]["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-next"
    assert not operated.has("gpushare-mps")
