"""gpushare in the operator's namespace, on a real API server: its accounts there may write what only gpushare writes,
the same accounts of any other namespace may not, and its own pods start without the webhook."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

from gpushare.core.facts import names
from gpushare.operator import manifests
from gpushare.operator.desired import admission
from gpushare.operator.desired.component import Cluster as Around
from gpushare.operator.desired.policy import Admission, Scheduler, Spec
from tests.e2e import test_admission
from tests.e2e.harness import objects, users, webhooks
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.api_client import unique
from tests.support.objects import Object

OTHERS = ("kube-system", "third", "gpu")
WRITERS = ("gpushare-schd-extender", "gpushare-node", "gpushare-nvidia")
MAY = "gpushare-own-namespace-test"
PATIENCE = 30.0
SPEC = Spec(admission=Admission(unasked="void"), scheduler=Scheduler(assign_pods=False))
Installed = Callable[[World, str], contextlib.AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def by_policies(world: World, own: str) -> AsyncIterator[None]:
    """As the operator applies them."""
    around = Around(own, (1, 36), "v1.36.4", "gpushare:test", kinds=frozenset({admission.POLICIES}))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _made(around)})
    await world.cluster.kubectl("apply", "-f", "-", given=text)
    try:
        yield
    finally:
        await world.cluster.kubectl("delete", "-f", "-", given=text)


def _made(around: Around) -> list[Object]:
    made = admission.build(SPEC, around, manifests.load)
    assert not made.unserved
    return list(made.objects)


@contextlib.asynccontextmanager
async def by_webhook(world: World, own: str) -> AsyncIterator[None]:
    async with webhooks.installed(world.cluster, own) as found:
        await found.replica("--unasked", "void")
        await found.registered()
        yield


@pytest.fixture
async def own(world: World) -> AsyncIterator[str]:
    """The operator's namespace. It begins like the names of its accounts: nothing may mistake one for the other."""
    name = unique("gpushare-operator")
    await world.api.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def is_ready() -> bool:
        return (await world.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")).code == 200

    await wait.eventually_asked(is_ready, f"{name} is ready", PATIENCE)
    yield name
    await world.api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def allowed(world: World, own: str) -> AsyncIterator[None]:
    """All service accounts may do everything with pods and nodes, so that only admission decides."""
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status", "nodes", "nodes/status"], "verbs": ["*"]}]
    group = "rbac.authorization.k8s.io"
    version, meta = f"{group}/v1", {"name": MAY}
    everybody = [
        {"apiGroup": group, "kind": "User", "name": user(namespace, name)}
        for namespace in (own, *OTHERS)
        for name in (*WRITERS, "gpushare-finder", "gpushare-validator", "gpushare-operator", "scheduler")
    ]
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": MAY}
    await world.cluster.apply(
        {"apiVersion": version, "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": ref, "subjects": everybody},
    )
    yield
    for kind in ("clusterrolebinding", "clusterrole"):
        await world.cluster.kubectl("delete", kind, MAY)


def user(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


async def writes(world: World, who: str, path: str, key: str) -> bool:
    """Whether this user may write this annotation there."""
    async with users.acting_as(world, who) as person:
        answer = await person.patch(path, {"metadata": {"annotations": {key: f"by {who}"}}})
    assert answer.code in (200, 403), answer.message
    assert answer.code == 200 or "only gpushare writes" in answer.message, answer.message
    return answer.code == 200


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("installed", [by_policies, by_webhook])
async def test_only_our_accounts_of_the_operators_namespace_write_what_gpushare_writes(
    world: World, own: str, figures: Figures, installed: Installed
) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000])
    at_node, tried = f"/api/v1/nodes/{node}", 0
    pod = await world.api.create(world.api.pods, objects.pod(name="p", containers={"main": 5}, scheduler="nobody"))
    at_pod = f"{world.api.pods}/{pod['metadata']['name']}"
    async with installed(world, own):
        await test_admission.until("the guard", world, test_admission.guards, True)
        for namespace in (own, *OTHERS):
            for name in WRITERS:
                who, ours = user(namespace, name), namespace == own
                assert await writes(world, who, at_pod, names.ALIYUN_IDX) is ours, who
                assert await writes(world, who, at_node, names.NODE_GPUS) is ours, who
                tried += 2
            for key, name in ((names.VALIDATION, "gpushare-validator"), (names.TAINTED, "gpushare-operator")):
                who = user(namespace, name)
                assert await writes(world, who, at_node, key) is (namespace == own), who
                assert await writes(world, who, at_node, names.NODE_GPUS) is False, who
                assert await writes(world, who, at_pod, names.ALIYUN_IDX) is False, who
                tried += 3
        assert await writes(world, user("gpu", "scheduler"), at_pod, names.ALIYUN_IDX) is False, "KETI is not here"
    figures.say(
        f"gpushare in a namespace of its own, {installed.__name__}", f"{tried} writes: only its own accounts may"
    )


@pytest.mark.usefixtures("allowed")
async def test_programs_on_a_node_write_what_they_have_to_and_nothing_else(world: World, own: str) -> None:
    mine, another = await world.make_nodes(2, gpus=[8000])
    found, more = ({"metadata": {"labels": {label: "true"}}} for label in names.PCI_LABELS[:2])
    note: Object = {"metadata": {"annotations": {"example.com/x": "y"}}}
    checked: Object = {"metadata": {"annotations": {names.VALIDATION: "{}"}}}

    async def code(name: str, node: str, change: Object) -> int:
        async with users.acting_as(world, user(own, name), on_node=mine) as program:
            return (await program.patch(f"/api/v1/nodes/{node}", change)).code

    async def in_force() -> bool:
        return await code("gpushare-finder", another, found) == 403

    async with by_policies(world, own):
        await wait.eventually_asked(in_force, "programs write to their own node only", PATIENCE)
        for name, change, wanted in (
            ("gpushare-finder", found, 200),
            ("gpushare-finder", note, 403),
            ("gpushare-validator", checked, 200),
            ("gpushare-validator", more, 403),
            ("gpushare-node", note, 200),
            ("gpushare-node", more, 403),
        ):
            assert await code(name, mine, change) == wanted, (name, change)
            assert await code(name, another, change) == 403, (name, change)


async def voided(world: World, namespace: str) -> bool | None:
    """Whether a new pod there is hidden from GPUs; None: it is refused, because the webhook is away."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    answer = await world.api.call("POST", path, objects.pod(name="plain", containers={"main": None}), dryRun="All")
    if answer.code != 201:
        assert "failed calling webhook" in answer.message
        return None
    return bool(answer.body["spec"]["containers"][0].get("env"))


@pytest.mark.parametrize("installed", [by_policies, by_webhook])
async def test_pods_of_the_operators_namespace_see_their_gpus_and_others_do_not(
    world: World, own: str, installed: Installed
) -> None:
    async with installed(world, own):

        async def in_force() -> bool:
            return await voided(world, world.api.namespace) is True

        await wait.eventually_asked(in_force, "pods that ask for nothing see nothing", PATIENCE)
        assert await voided(world, own) is False


async def test_pods_of_the_operators_namespace_start_while_the_webhook_is_away(world: World, own: str) -> None:
    async with webhooks.installed(world.cluster, own) as found:
        process, _ = await found.replica("--unasked", "void", "--scheduler-name", "gpu-scheduler")
        await found.registered()

        async def in_force() -> bool:
            return await voided(world, world.api.namespace) is True

        await wait.eventually_asked(in_force, "the webhook is asked", PATIENCE)
        await found.kill(process)
        assert await voided(world, world.api.namespace) is None
        assert await voided(world, own) is False
        label = {"metadata": {"labels": {"gpushare.io/unasked": "void"}}}
        assert (await world.api.patch(f"/api/v1/namespaces/{own}", label)).code == 200
        assert await voided(world, own) is False, "whatever its label says: the webhook has to start there"
