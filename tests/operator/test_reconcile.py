"""Passes over a cluster in memory: what each writes, and that the end is the same however often it is cut off."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.kube import resources
from gpushare.kube.errors import ApiError, Unreachable
from gpushare.kube.requests import Request
from gpushare.operator.metrics import FAILED, NO_POLICY, READY
from tests.operator.operated import CLUSTER, DAEMON_SETS, NS, POLICY, Operated

Object = dict[str, Any]

MPS_ACCOUNT = resources.Resource("", "v1", "serviceaccounts").item(NS, "gpushare-mps")
FORBIDDEN = (
    'daemonsets.apps "gpushare-node" is forbidden: User "system:serviceaccount:gpu-operator:gpushare-operator" cannot '
    'patch resource "daemonsets" in API group "apps" in the namespace "gpu-operator"'
)


@pytest.fixture
async def operated() -> Operated:
    return Operated()


async def test_without_a_policy_nothing_is_written(operated: Operated) -> None:
    operated.node("a")
    assert await operated.settle() == 0
    assert operated.figures.result == NO_POLICY


async def test_a_policy_gets_its_objects_its_labels_and_its_status(operated: Operated) -> None:
    operated.node("a")
    operated.pod("gpushare-node-x7k")
    operated.policy()
    await operated.settle()
    made = operated.api.objects[DAEMON_SETS.item(NS, "gpushare-node")]
    assert made["metadata"]["ownerReferences"][0]["uid"] == f"uid-{POLICY}"
    assert made["spec"]["template"]["metadata"]["labels"][names.PART_OF] == "node-part"
    assert operated.labels("a")[names.GPU_PRESENT] == "true"
    assert operated.shown()["metadata"]["finalizers"] == [names.CLEAN_UP]
    assert operated.status()["state"] == "ready"
    assert operated.figures.result == READY
    assert ("ComponentReady", "node-part is ready") in operated.events


async def test_a_pass_that_finds_all_as_wanted_writes_nothing(operated: Operated) -> None:
    operated.node("a")
    operated.policy()
    await operated.settle()
    operated.api.writes.clear()
    operated.replace()
    assert await operated.passes()
    assert operated.api.writes == []


async def test_words_that_the_api_server_changes_are_applied_once(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    operated.policy()
    await operated.settle()
    path = DAEMON_SETS.item(NS, "gpushare-node")
    original = operated.api._apply

    def other_words(at: str, request: Request) -> Object:
        made = original(at, request)
        if at == path:
            made["spec"]["template"]["spec"]["containers"][0]["image"] = "in other words"
        return made

    monkeypatch.setattr(operated.api, "_apply", other_words)
    del operated.api.objects[path]
    assert await operated.settle() <= 2
    operated.api.objects[path]["spec"]["paused"] = True  # somebody changes it: once more
    operated.api.put(path, operated.api.objects[path])
    operated.api.writes.clear()
    await operated.settle()
    assert operated.api.writes.count(f"PATCH {path}") == 1


async def test_what_is_switched_off_goes_and_nothing_else(operated: Operated) -> None:
    operated.policy(mps={"enabled": True})
    await operated.settle()
    assert operated.has("gpushare-mps")
    others = DAEMON_SETS.item(NS, "others")
    operated.api.put(others, {"metadata": {"name": "others", "labels": dict([names.MANAGED_BY])}})
    operated.change(mps={"enabled": False})
    await operated.settle()
    assert not operated.has("gpushare-mps")
    assert operated.has("gpushare-node")
    assert others in operated.api.objects, "it has our label, but not our policy as owner"
    assert ("ComponentDisabled", "mps is switched off and removed") in operated.events


async def test_rights_of_what_is_switched_off_stay_until_its_pods_have_ended(operated: Operated) -> None:
    operated.policy(mps={"enabled": True})
    await operated.settle()
    operated.pod("gpushare-mps-x", "mps")
    operated.pod("gpushare-node-x")
    operated.change(mps={"enabled": False})
    await operated.settle()
    assert not operated.has("gpushare-mps")
    assert MPS_ACCOUNT in operated.api.objects
    operated.pod("gpushare-mps-x", "mps", deletionTimestamp="2126-01-01T00:00:00Z")
    await operated.settle()
    assert MPS_ACCOUNT in operated.api.objects
    assert operated.reconciler.again is not None
    del operated.api.objects[resources.PODS.item(NS, "gpushare-mps-x")]
    await operated.settle()
    assert MPS_ACCOUNT not in operated.api.objects
    assert operated.reconciler.again is None


async def test_a_pod_of_a_dead_node_keeps_no_rights_and_wakes_nobody(operated: Operated) -> None:
    operated.policy(mps={"enabled": True})
    await operated.settle()
    operated.pod("gpushare-mps-x", "mps", deletionTimestamp="2026-01-01T00:00:00Z")
    operated.change()
    await operated.settle()
    assert MPS_ACCOUNT not in operated.api.objects
    assert operated.reconciler.again is None


async def test_an_object_with_the_same_name_by_now_is_not_deleted(operated: Operated) -> None:
    operated.policy(mps={"enabled": True})
    await operated.settle()
    operated.change()
    operated.see()
    path = DAEMON_SETS.item(NS, "gpushare-mps")
    operated.api.objects[path]["metadata"]["uid"] = "another"
    await operated.reconciler.run(CLUSTER, ())
    assert path in operated.api.objects


async def test_a_changed_policy_changes_its_objects(operated: Operated) -> None:
    operated.policy()
    await operated.settle()
    operated.change(devicePlugin={"version": "2"})
    await operated.settle()
    spec = operated.api.objects[DAEMON_SETS.item(NS, "gpushare-node")]["spec"]
    assert spec["template"]["spec"]["containers"][0]["image"] == "gpushare:2"
    assert operated.status()["observedGeneration"] == 2


async def test_what_may_not_be_written_is_named_and_does_not_stop_the_rest(operated: Operated) -> None:
    operated.node("a")
    operated.policy(mps={"enabled": True})

    def refuse(request: Request) -> ApiError | None:
        return ApiError(403, "Forbidden", FORBIDDEN) if request.path.endswith("daemonsets/gpushare-node") else None

    operated.api.refuse = refuse
    assert not await operated.passes()
    assert operated.message().startswith(
        "node-part: DaemonSet gpushare-node cannot be applied: not allowed: patch daemonsets of apps in namespace "
        'gpu-operator, as "system:serviceaccount:gpu-operator:gpushare-operator" (403)'
    )
    assert operated.figures.result == FAILED
    assert operated.has("gpushare-mps")
    assert operated.labels("a")[names.GPU_PRESENT] == "true"
    operated.api.refuse = lambda request: None
    assert await operated.passes()
    assert "cannot be applied" not in operated.message()


async def test_before_everything_is_seen_only_the_reason_is_written(operated: Operated) -> None:
    operated.policy()
    assert not await operated.passes(None)
    assert operated.api.writes == []
    assert not await operated.passes(ApiError(403, "Forbidden", FORBIDDEN.replace("patch", "list")), None)
    assert operated.message().startswith("not allowed: list daemonsets of apps")
    assert operated.api.writes == [f"PATCH {resources.CLUSTER_POLICIES.item('', POLICY, 'status')}"]


async def test_a_policy_that_cannot_be_read_says_so_and_changes_nothing(operated: Operated) -> None:
    operated.policy()
    await operated.settle()
    operated.change(sharing={"sell": "everything"})
    await operated.settle()
    assert "the policy cannot be read: Invalid enum value 'everything'" in operated.message()
    assert operated.has("gpushare-node")


async def test_a_replica_that_does_not_lead_any_more_writes_nothing(operated: Operated) -> None:
    operated.policy()
    operated.leads = False
    assert not await operated.passes()
    assert operated.api.writes == []


async def test_the_oldest_policy_counts_and_the_next_one_after_it(operated: Operated) -> None:
    operated.policy("younger", made="2026-11-17T20:00:01Z", mps={"enabled": True})
    operated.policy("older")
    await operated.settle()
    assert operated.status("younger")["state"] == "ignored"
    assert not operated.has("gpushare-mps")
    operated.delete("older")
    await operated.settle()
    _forget(operated, "older")
    await operated.settle()
    assert operated.status("younger")["state"] == "ready"
    assert operated.has("gpushare-mps")


def _forget(operated: Operated, name: str = POLICY) -> None:
    """As the API server does with a deleted object that has no finalizer left."""
    assert operated.shown(name)["metadata"]["finalizers"] == []
    del operated.api.objects[resources.CLUSTER_POLICIES.item("", name)]


async def test_an_ignored_policy_that_is_deleted_takes_nothing_with_it(operated: Operated) -> None:
    operated.policy()
    operated.policy("younger", made="2026-11-17T20:00:01Z")
    operated.shown("younger")["metadata"]["finalizers"] = [names.CLEAN_UP]
    operated.node("a")
    await operated.settle()
    operated.delete("younger")
    await operated.settle()
    _forget(operated, "younger")
    assert operated.has("gpushare-node")
    assert operated.labels("a")[names.GPU_PRESENT] == "true"


async def test_deleting_waits_for_pods_and_then_takes_everything_back(operated: Operated) -> None:
    operated.node("a", hand="made")
    operated.policy()
    await operated.settle()
    operated.pod("gpushare-node-x")
    operated.delete()
    await operated.settle()
    assert not operated.has("gpushare-node")
    assert resources.Resource("", "v1", "serviceaccounts").item(NS, "gpushare-node") in operated.api.objects
    assert operated.labels("a")[names.GPU_PRESENT] == "true"
    assert operated.message() == "node-part: a: waiting until pod gpushare-node-x has ended"
    assert operated.status()["conditions"][0]["reason"] == "Deleting"
    del operated.api.objects[resources.PODS.item(NS, "gpushare-node-x")]
    await operated.settle()
    _forget(operated)
    assert operated.labels("a") == {names.PCI_LABELS[0]: "true", "hand": "made"}
    left = [path for path in operated.api.objects if "/nodes/" not in path]
    assert left == []


async def test_a_pod_that_the_watch_has_not_shown_yet_is_waited_for(operated: Operated) -> None:
    operated.policy()
    await operated.settle()
    operated.delete()
    operated.see()
    await operated.reconciler.run(CLUSTER, ())
    operated.see()
    operated.pod("gpushare-node-late")
    await operated.reconciler.run(CLUSTER, ())
    assert "waiting until pod gpushare-node-late has ended" in operated.message()


async def test_a_pod_on_a_dead_node_is_not_waited_for_for_ever(operated: Operated) -> None:
    operated.policy()
    await operated.settle()
    operated.delete()
    operated.pod("gpushare-node-x", deletionTimestamp="2026-01-01T00:00:00Z")
    await operated.settle()
    _forget(operated)


async def test_a_failure_while_deleting_is_said_and_tried_again(operated: Operated) -> None:
    operated.policy()
    await operated.settle()
    operated.delete()
    operated.api.refuse = lambda request: (
        Unreachable("no answer within 10 s", sent=True) if request.method == "DELETE" else None
    )
    assert not await operated.passes()
    assert "deleting failed: no answer within 10 s" in operated.message()
    operated.api.refuse = lambda request: None
    await operated.settle()
    _forget(operated)


async def test_what_a_node_sells_without_kubelet_is_taken_back(operated: Operated) -> None:
    operated.policy()
    operated.node("a")
    path = resources.NODES.item("", "a")
    written = node_gpus.write("MiB", Pin.DIRECT, [Gpu(0, "GPU-0", 100, True)])
    found = operated.api.objects[path]
    found["metadata"]["annotations"] = {names.NODE_GPUS: written, "others": "stay"}
    found["status"] = {"capacity": {names.GPU_MEM: "100", names.GPU_COUNT: "1", "cpu": "4"}}
    await operated.settle()
    operated.delete()
    await operated.settle()
    assert operated.api.objects[path]["metadata"]["annotations"] == {"others": "stay"}
    assert operated.api.objects[path]["status"]["capacity"] == {"cpu": "4"}


@pytest.mark.parametrize("seed", range(30))
async def test_cut_off_at_any_write_it_comes_to_the_same_end(operated: Operated, seed: int) -> None:
    """Installing, changing and deleting, each by several processes that die in the middle."""
    undisturbed, chance = Operated(), random.Random(seed)
    for one, dies in ((undisturbed, False), (operated, True)):
        for name in "abc":
            one.node(name)
        one.policy(mps={"enabled": True}, daemonsets={"taint": True})
        await _lived(one, chance, dies)
        one.change(devicePlugin={"version": "2"}, sharing={"sell": "gpus"})
        await _lived(one, chance, dies)
    assert _content(operated) == _content(undisturbed)
    for one, dies in ((undisturbed, False), (operated, True)):
        one.delete()
        await _lived(one, chance, dies)
        _forget(one)
    assert _content(operated) == _content(undisturbed)


async def _lived(operated: Operated, chance: random.Random, dies: bool) -> None:
    for _ in range(4 if dies else 0):
        last = len(operated.api.writes) + chance.randrange(1, 12)

        def die(request: Request, last: int = last) -> None:
            if len(operated.api.writes) >= last:
                raise asyncio.CancelledError

        operated.api.refuse = die
        operated.replace()
        with contextlib.suppress(asyncio.CancelledError):
            await operated.settle()
    operated.api.refuse = lambda request: None
    operated.replace()
    await operated.settle()


def _content(operated: Operated) -> dict[str, Object]:
    """Without versions and times."""
    found = {}
    for path, one in operated.api.objects.items():
        metadata = {key: value for key, value in one["metadata"].items() if key not in ("resourceVersion", "owned")}
        found[path] = {**one, "metadata": metadata, "status": None}
    return found
