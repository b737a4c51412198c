"""`gpushare operator` on a real API server, without kubelet: what it writes, when, and what is left at the end."""

import asyncio
import contextlib
import functools
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from bench.process import cpu_seconds
from gpushare.core.facts import names
from gpushare.kube import lease
from tests.e2e.harness import installation, operating
from tests.e2e.harness.cluster import Cluster, Failed
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.operating import DAEMON_SETS, NAMESPACE, POLICIES, POLICY, Operating
from tests.support.objects import Object

pytestmark = pytest.mark.own_cluster

PUT_BACK = 5.0  # seconds, promised on a machine with nothing else to do
KILLS = 20
MANY = 1000
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{operating.ACCOUNT}"
DRIVER = f"{names.DEPLOY_PREFIX}driver"
CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-node"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-scheduler"
SERVICE_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gpushare-node"


@pytest.fixture(scope="module")
def prepared(cluster: Cluster) -> Iterator[Operating]:
    yield from installation.held(operating.prepared(cluster))


@pytest.fixture
async def operator(prepared: Operating) -> AsyncIterator[Operating]:
    async with prepared.with_gpu_node("loop-a"):
        yield prepared


async def settled(operator: Operating) -> None:
    """All of a policy is there, as far as it can be without kubelet."""
    try:
        await operator.until("the policy is observed", lambda: observed(operator))
    except AssertionError as late:
        raise AssertionError(f"{late}: {await operator.message()}") from None


async def observed(operator: Operating) -> bool:
    policy = await operator.find(f"{POLICIES}/{POLICY}") or {}
    status, generation = policy.get("status") or {}, (policy.get("metadata") or {}).get("generation")
    return (
        status.get("observedGeneration") == generation
        and "not there yet" not in str(status)
        and "not seen by its controller" not in str(status)
        and "cannot be" not in str(status)
    )


async def image(operator: Operating, name: str = "gpushare-node") -> str:
    found = await operator.find(f"{DAEMON_SETS}/{name}") or {}
    containers = found.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or [{}]
    return str(containers[0].get("image", ""))


async def test_what_people_change_is_put_back(operator: Operating, figures: Figures) -> None:
    await operator.policy()
    kubectl, took = operator.cluster.kubectl, dict[str, float]()
    async with operator.running():
        await settled(operator)
        await kubectl("-n", NAMESPACE, "set", "image", "daemonset/gpushare-node", "*=evil:1")
        took["an edited DaemonSet"] = await operator.until("image", lambda: is_image(operator, operating.IMAGE))

        for what, path, words in (
            ("a deleted ClusterRole", CLUSTER_ROLE, ("clusterrole", "gpushare-node")),
            ("a deleted ConfigMap", CONFIG_MAP, ("-n", NAMESPACE, "configmap", "gpu-scheduler")),
            ("a deleted account", SERVICE_ACCOUNT, ("-n", NAMESPACE, "serviceaccount", "gpushare-node")),
            ("a deleted DaemonSet", f"{DAEMON_SETS}/gpushare-node", ("-n", NAMESPACE, "daemonset", "gpushare-node")),
        ):
            old = (await operator.cluster.get(path))["metadata"]["uid"]
            await kubectl("delete", *words, "--wait=false")
            took[what] = await operator.until(what, functools.partial(is_new, operator, path, old))

        rule = '[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]'
        await kubectl("patch", "clusterrole", "gpushare-node", "--type=json", "-p", rule)
        took["a role with one more rule"] = await operator.until("rules", lambda: has_no_stars(operator))

        await kubectl("label", "node", "loop-a", f"{names.GPU_PRESENT}=false", "--overwrite")
        took["a changed label of a node"] = await operator.until(
            "label", lambda: has_label(operator, names.GPU_PRESENT, "true")
        )
        await kubectl("label", "node", "loop-a", f"{DRIVER}-")
        took["a removed label of a node"] = await operator.until("label", lambda: has_label(operator, DRIVER, "true"))
    for what, seconds in took.items():
        figures.say(f"operator puts back {what}", f"{seconds * 1000:.0f} ms")
    assert max(took.values()) <= PUT_BACK, took


async def is_image(operator: Operating, wanted: str) -> bool:
    return await image(operator) == wanted


async def is_new(operator: Operating, path: str, old: str) -> bool:
    found = await operator.find(path)
    return found is not None and found["metadata"]["uid"] != old


async def has_no_stars(operator: Operating) -> bool:
    return "*" not in str((await operator.cluster.get(CLUSTER_ROLE))["rules"])


async def has_label(operator: Operating, key: str, value: str, node: str = "loop-a") -> bool:
    return (await operator.labels(node)).get(key) == value


async def test_nothing_is_written_while_nothing_changes(operator: Operating, figures: Figures) -> None:
    await operator.policy()
    async with operator.running() as process:
        await settled(operator)
        await asyncio.sleep(5)  # pods of the DaemonSets appear, and their counts
        mark, before = operator.cluster.audit.mark(), cpu_seconds(process.popen.pid)
        for beat in range(10):
            await operator.cluster.kubectl(
                "patch", "node", "loop-a", "--subresource=status", "--type=merge", "-p",
                f'{{"status": {{"conditions": [{{"type": "Ready", "status": "True", "reason": "beat-{beat}"}}]}}}}',
            )  # fmt: skip
            await asyncio.sleep(1)
        asked = [one for one in operator.cluster.audit.since(mark) if one.user.username == OPERATOR]
        spent = cpu_seconds(process.popen.pid) - before
    writes = [f"{one.verb} {one.kind}" for one in asked if one.is_write and one.kind != "leases"]
    reads = [f"{one.verb} {one.kind}" for one in asked if not one.is_write and one.kind != "leases"]
    assert writes == []
    figures.say("operator, 10 s of heartbeats", f"{spent * 1000:.0f} CPU-ms, {len(reads)} reads besides its lease")
    assert len(reads) <= 5, reads


async def test_a_second_policy_is_ignored_until_the_first_is_gone(operator: Operating) -> None:
    async with operator.running():
        await operator.policy()
        await settled(operator)
        await asyncio.sleep(1.1)  # the age of a policy is in seconds
        await operator.policy("another", daemonsets={"taint": True})
        await operator.until("the second says so", lambda: said(operator, "is active, and only one can be", "another"))
        assert (await operator.status("another"))["state"] == "ignored"
        assert (await operator.labels("loop-a"))[names.GPU_PRESENT] == "true"
        assert await taints(operator) == []
        await operator.delete()
        await operator.until("the second is active", lambda: is_tainted(operator))
        assert (await operator.status("another"))["state"] == "notReady"
        owner = (await operator.cluster.get(f"{DAEMON_SETS}/gpushare-node"))["metadata"]["ownerReferences"]
        assert [one["name"] for one in owner] == ["another"]


async def said(operator: Operating, words: str, policy: str = POLICY) -> bool:
    return words in await operator.message(policy)


async def taints(operator: Operating) -> list[Object]:
    found = (await operator.cluster.get("/api/v1/nodes/loop-a"))["spec"].get("taints", [])
    return [one for one in found if one["key"] == names.GPU_TAINT[0]]


async def is_tainted(operator: Operating) -> bool:
    return bool(await taints(operator))


ON, OFF = {"enabled": True}, {"enabled": False}
SWITCHES: dict[str, tuple[str, Object, Object]] = {  # component: the field, as it is by default, and otherwise
    "runtime-class": ("operator", {"runtimeClass": "nvidia"}, {"runtimeClass": ""}),
    "driver": ("driver", OFF, {"enabled": True, "version": "595.91.07-ubuntu24.04"}),
    "toolkit": ("toolkit", OFF, ON),
    "finder": ("finder", ON, OFF),
    "validator": ("validator", ON, OFF),
    "node-part": ("devicePlugin", ON, OFF),
    "discovery": ("gfd", ON, OFF),
    "exporter": ("dcgmExporter", ON, OFF),
    "node-status-exporter": ("nodeStatusExporter", OFF, ON),
    "mps": ("mps", OFF, ON),
    "scheduler": ("scheduler", ON, OFF),
    "admission": ("admission", ON, OFF),
}


async def test_every_component_is_switched_off_and_on(operator: Operating) -> None:
    async with operator.running():
        await operator.policy(sharing={"mpsSlots": 4})
        await settled(operator)
        first = await operator.contents()
        known = {one["name"] for one in (await operator.status())["components"]}
        assert known >= SWITCHES.keys()
        for component, (field, default, other) in SWITCHES.items():
            for wanted in (other, default, other, default):
                await operator.change(**{field: wanted})
                await settled(operator)
                await operator.until(
                    f"{component}: {wanted}", functools.partial(is_content, operator, first, wanted is default)
                )


async def is_content(operator: Operating, content: list[str], wanted: bool = True) -> bool:
    return (await operator.contents() == content) == wanted


async def has_objects(operator: Operating, component: str, some: bool) -> bool:
    found = await operator.made(component)
    return bool(found) == some


async def test_what_cannot_be_served_is_said(operator: Operating) -> None:
    async with operator.running():
        await operator.policy(vgpuManager={"enabled": True}, migManager={"enabled": True}, monitoring={"enabled": True})
        await settled(operator)
        states = {one["name"]: one for one in (await operator.status())["components"]}
        for name in ("vgpu-manager", "mig-manager", "monitoring"):
            assert states[name]["state"] == "unserved"
            assert states[name]["message"]
        await operator.until("an event", lambda: says_unserved(operator))


async def says_unserved(operator: Operating) -> bool:
    events = await operator.cluster.kubectl("get", "events", "-n", "default", "-o", "wide")
    return "vgpu-manager cannot be served" in events


async def test_a_missing_right_is_named_and_healed(operator: Operating, figures: Figures) -> None:
    rights = operating.rights()
    less = operating.rights()
    for rule in less[NAMESPACE]:
        if "daemonsets" in rule["resources"]:
            rule["resources"] = [one for one in rule["resources"] if one != "daemonsets"]
    await operator.grant(less)
    try:
        async with operator.running():
            await operator.policy()
            words = "daemonsets of apps in namespace gpu-operator"
            took = await operator.until("the right is named", lambda: said(operator, words))
            assert (await operator.status())["state"] == "notReady"
            reasons = {one["type"]: one["reason"] for one in (await operator.status())["conditions"]}
            assert reasons == {"Ready": "Error", "Error": "ReconcileFailed"}
            await operator.grant(rights)
            healed = await operator.until("it goes on", lambda: observed_with_node_part(operator))
    finally:
        await operator.grant(rights)
    figures.say("operator, a missing right", f"named after {took:.1f} s, healed after {healed:.1f} s")
    assert took <= 10


async def observed_with_node_part(operator: Operating) -> bool:
    return await operator.find(f"{DAEMON_SETS}/gpushare-node") is not None and await observed(operator)


async def test_of_two_replicas_one_works_and_the_other_takes_over(operator: Operating, figures: Figures) -> None:
    await operator.policy()
    first = await operator.start("operator-first")
    try:
        await settled(operator)
        async with operator.running("operator-second"):
            await asyncio.sleep(3)
            assert await holder(operator) == "operator-first"
            await operator.end(first, signal.SIGKILL)
            begun = time.monotonic()
            await operator.cluster.kubectl("-n", NAMESPACE, "delete", "daemonset", "gpushare-node", "--wait=false")
            await operator.until("the second works", lambda: exists(operator, f"{DAEMON_SETS}/gpushare-node"))
            took = time.monotonic() - begun
            assert await holder(operator) == "operator-second"
            figures.say("operator killed", f"the other replica works after {took:.1f} s")
            assert took <= lease.DURATION + 2 * lease.RETRY + 5
            third = await operator.start("operator-third")
        begun = time.monotonic()  # the second has ended in order
        await operator.until("the third leads", lambda: holds(operator, "operator-third"))
        figures.say("operator stopped in order", f"the other replica leads after {time.monotonic() - begun:.1f} s")
        assert time.monotonic() - begun <= lease.RETRY + 3
        await operator.end(third)
    finally:
        await operator.end(first)


async def holder(operator: Operating) -> str:
    found = await operator.find(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gpushare-operator") or {}
    return str(found.get("spec", {}).get("holderIdentity", "")).partition("_")[0]


async def holds(operator: Operating, name: str) -> bool:
    return await holder(operator) == name


async def exists(operator: Operating, path: str) -> bool:
    found = await operator.find(path)
    return found is not None and "deletionTimestamp" not in found["metadata"]


async def test_killed_at_random_it_comes_to_the_same_end(operator: Operating, figures: Figures) -> None:
    """During install, upgrade and delete; compared with a run without kills."""
    chance, kills, ends = random.Random(16), 0, dict[str, list[str]]()
    for killed in (False, True):
        for stage in (install, upgrade, remove):
            await stage(operator)
            if killed:
                kills += await kill_again_and_again(operator, chance, KILLS // 3 + 1)
            async with operator.running("operator-undisturbed"):
                await ended(operator, stage is remove)
                if not killed:
                    await operator.until("finder", functools.partial(has_objects, operator, "finder", stage is install))
                    ends[stage.__name__] = await operator.contents()
                await operator.until("the same end", functools.partial(is_content, operator, ends[stage.__name__]))
    figures.say("operator killed at random", f"{kills} times during install, upgrade and delete; same end")


async def ended(operator: Operating, removed: bool) -> None:
    if removed:
        await operator.gone()
        return
    await settled(operator)
    await operator.until("the node is labelled", lambda: has_label(operator, DRIVER, "true"))


async def install(operator: Operating) -> None:
    await operator.policy()


async def upgrade(operator: Operating) -> None:
    await operator.change(
        sharing={"sell": "gpus"}, mps={"enabled": False}, toolkit={"enabled": True}, finder={"enabled": False},
        devicePlugin={"env": [{"name": "ADDED", "value": "1"}]}, daemonsets={"taint": True},
    )  # fmt: skip


async def remove(operator: Operating) -> None:
    await operator.delete()


async def kill_again_and_again(operator: Operating, chance: random.Random, times: int) -> int:
    for _ in range(times):
        await operator.forget_lease()  # else each would wait for the one before
        process = await operator.start("operator-killed")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0.8, 4.0)):
                await asyncio.Event().wait()
        await operator.end(process, signal.SIGKILL)
    await operator.forget_lease()
    return times


async def test_a_thousand_nodes_appear(operator: Operating, figures: Figures) -> None:
    off = {"enabled": False}
    await operator.policy(finder=off, validator=off, gfd=off, scheduler=off)
    async with operator.running() as process:
        await settled(operator)
        mark, before = operator.cluster.audit.mark(), cpu_seconds(process.popen.pid)
        begun = time.monotonic()
        names_of = [f"loop-many-{number}" for number in range(MANY)]
        await operator.nodes(names_of)
        made = time.monotonic() - begun
        await operator.until("all are labelled", lambda: counts(operator, MANY + 1), 120.0)
        took = time.monotonic() - begun
        await operator.until("each has its node part", lambda: served(operator, MANY + 1), 180.0)
        waited = time.monotonic() - begun
        spent = cpu_seconds(process.popen.pid) - before
        asked = [one for one in operator.cluster.audit.since(mark) if one.user.username == OPERATOR and one.is_write]
        writes = [one for one in asked if one.kind == "nodes"]
        others = len([one for one in asked if one.kind not in ("nodes", "leases")])
        figures.say(
            f"operator, {MANY} nodes appear in {made:.1f} s",
            f"all labelled after {took:.1f} s, a node part wanted on each after {waited:.1f} s,"
            f" {len(writes) / MANY:.2f} writes per node, {others} others, {spent:.2f} CPU-s",
        )
        assert took <= 60
        assert len(writes) <= MANY * 1.05 + 1
        refused = [one for one in asked if one.response_status.code >= 400 and one.response_status.code != 409]
        assert refused == []
        mark, begun = operator.cluster.audit.mark(), time.monotonic()
        await operator.delete()
        await operator.gone()
        writes = [
            one for one in operator.cluster.audit.since(mark)
            if one.user.username == OPERATOR and one.is_write and one.kind == "nodes"
        ]  # fmt: skip
        figures.say(
            f"operator, {MANY} nodes are taken back",
            f"{time.monotonic() - begun:.1f} s, {len(writes) / MANY:.2f} writes per node",
        )
    assert await operator.labels("loop-many-7") == operating.GPU
    await operator.remove_nodes("loop-many-")


async def counts(operator: Operating, labelled: int) -> bool:
    return ((await operator.status()).get("nodes") or {}).get("gpu") == labelled and await all_labelled(operator)


async def served(operator: Operating, nodes: int) -> bool:
    """The DaemonSet's controller wants its pod on each of them; there is no kubelet here to run it."""
    found = await operator.find(f"{DAEMON_SETS}/gpushare-node") or {}
    return (found.get("status") or {}).get("desiredNumberScheduled") == nodes


async def all_labelled(operator: Operating) -> bool:
    listed = await operator.cluster.get(f"/api/v1/nodes?labelSelector=!{names.GPU_PRESENT}&limit=1")
    return not listed["items"]


async def test_the_jobs_of_the_chart_need_no_more_than_their_rights(operator: Operating) -> None:
    """Kinds and policies, with the rights of each job, while the operator runs."""
    async with operator.running():
        await operator.policy()
        await settled(operator)
        await operator.as_job("installCrds", "--install-crds")
        await operator.as_job("uninstall", "--uninstall", "--keep-crds")
        assert await operator.find(f"{POLICIES}/{POLICY}") is None
        with pytest.raises(Failed):
            await operator.cluster.kubectl("get", "daemonset", "-n", NAMESPACE, "gpushare-node")
        await operator.as_job("uninstall", "--uninstall")
        await operator.until("the kind is gone", lambda: kind_is_gone(operator))
        await operator.once("--install-crds")


async def kind_is_gone(operator: Operating) -> bool:
    """The API server deletes its objects first, and takes a moment for it."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
    return await operator.find(path + operating.CRD) is None
