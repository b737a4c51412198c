"""deploy/unasked.yaml on a real API server: a container that asks for no GPU is told that it has none.

The stand-in does the same to the same pods (`tests/contracts/api/test_unasked_effect`). Ephemeral containers, rights
and other people's mutations are tried here only.
"""

import contextlib
from collections.abc import AsyncIterator

import pytest

from gpushare.core.admission import unasked as core
from gpushare.devcluster.apiserver.server import UNASKED_DENIES
from tests.contracts.api import test_unasked_effect as effect
from tests.contracts.api.test_admission_effect import container, environments, pod
from tests.e2e.harness import users
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.e2e.test_admission import in_force, pins, until
from tests.support.api_client import Api, Object, unique

UNASKED = "unasked.yaml"
STRATEGIC = "application/strategic-merge-patch+json"
LATER = "later-than-gpushare"


async def voids(world: World) -> bool:
    made = await world.api.call("POST", world.api.pods, pod([container("main")], [], name="silent"), dryRun="All")
    return bool(environments(made.body)["main"])


async def refuses(world: World) -> bool:
    """The second policy of that file."""
    large = pod([container(f"c{i}") for i in range(501)], [], name="large")
    return (await world.api.call("POST", world.api.pods, large, dryRun="All")).code == 403


@pytest.fixture
async def unasked(world: World) -> AsyncIterator[None]:
    async with in_force(world, UNASKED, voids):
        yield


@contextlib.asynccontextmanager
async def namespace(world: World, name: str, label: str = "") -> AsyncIterator[str]:
    """The path of its pods."""
    path = f"/api/v1/namespaces/{name}"
    metadata = {"name": name, "labels": {core.LABEL: label} if label else {}}
    await world.api.create("/api/v1/namespaces", {"metadata": metadata})
    account = {"metadata": {"name": "default"}}
    assert (await world.api.call("POST", f"{path}/serviceaccounts", account)).code in (201, 409)
    try:
        yield f"{path}/pods"
    finally:
        await world.api.call("DELETE", path)


@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize("pinned", [False, True])
async def test_the_policy_does_what_its_stand_in_does(world: World, figures: Figures, pinned: bool) -> None:
    tried = {name: case for name, case in effect.CASES.items() if case.pinned is pinned}
    async with in_force(world, "admission.yaml", pins) if pinned else contextlib.nullcontext():
        for i, (name, case) in enumerate(tried.items()):
            made = await world.api.create(world.api.pods, case.pod(f"case-{i}"))
            assert environments(made) == case.expected, name
        if pinned:
            effect.check_zero(await world.api.create(world.api.pods, effect.ZERO.pod("zero")))
    figures.say(
        f"containers that ask for no GPU, {'with' if pinned else 'without'} direct pinning",
        f"{len(tried)} kinds of pods, the same from the policy and from its stand-in",
    )


@pytest.mark.usefixtures("unasked")
async def test_the_namespace_says_where_and_a_tenant_cannot(world: World) -> None:
    silent = pod([container("main", [effect.own()])], [], name="p")
    for word, env in (("void", [effect.OWN, effect.VOID]), ("leave", [effect.OWN])):
        async with namespace(world, unique(word), label=word) as pods:
            assert environments(await world.api.create(pods, silent)) == {"main": env}
    system = await world.api.call("POST", "/api/v1/namespaces/kube-system/pods", silent, dryRun="All")
    assert environments(system.body) == {"main": [effect.OWN]}
    async with namespace(world, "gpu-operator") as pods:
        assert environments(await world.api.create(pods, silent)) == {"main": [effect.OWN]}
    await _let_be_admin(world, "bob")
    async with users.acting_as(world, "bob") as bob:
        assert environments(await bob.create(bob.pods, silent)) == {"main": [effect.OWN, effect.VOID]}
        label: Object = {"metadata": {"labels": {core.LABEL: "leave"}}}
        assert (await bob.patch(f"/api/v1/namespaces/{bob.namespace}", label)).code == 403


async def _let_be_admin(world: World, user: str) -> None:
    """Of his own namespace, as Kubernetes itself means it."""
    await world.cluster.apply(
        {
            "apiVersion": f"{users.RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": world.api.namespace},
            "roleRef": {"apiGroup": users.RBAC, "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": users.RBAC, "kind": "User", "name": user}],
        }
    )


async def _debug(api: Api, name: str, *containers: Object) -> dict[str, list[str]]:
    """Adds ephemeral containers as kubectl debug does. The env of all that the pod has then."""
    change = {"spec": {"ephemeralContainers": [made | {"targetContainerName": "main"} for made in containers]}}
    answer = await api.call(
        "PATCH", f"{api.pods}/{name}/ephemeralcontainers", change, content_type=STRATEGIC
    )  # fmt: skip
    assert answer.code == 200, answer.body
    return environments({"spec": {"containers": answer.body["spec"]["ephemeralContainers"]}})


async def test_ephemeral_containers_see_no_gpu_and_older_ones_are_no_hindrance(world: World) -> None:
    await world.api.create(world.api.pods, pod([container("main")], [], name="p"))
    before = await _debug(world.api, "p", container("old", [effect.own()]))
    assert before == {"old": [effect.OWN]}
    async with in_force(world, UNASKED, voids):
        after = await _debug(world.api, "p", container("image"), container("all", [effect.own()]))
        assert after == {"old": [effect.OWN], "image": [effect.VOID], "all": [effect.OWN, effect.VOID]}
        again = await _debug(world.api, "p", container("more", [effect.own("void")]))
        assert again == after | {"more": [effect.VOID]}
        unchanged = await world.api.get(f"{world.api.pods}/p")
        assert environments(unchanged.body) == {"main": []}  # made before the policy was there
        kubectl = ("debug", "p", "--image=busybox", "--container=shell", "--env=NVIDIA_VISIBLE_DEVICES=all")
        await world.cluster.kubectl("--namespace", world.api.namespace, *kubectl)
        seen = (await world.api.get(f"{world.api.pods}/p")).body["spec"]["ephemeralContainers"]
        assert environments({"spec": {"containers": seen}})["shell"] == [effect.OWN, effect.VOID]


@pytest.mark.usefixtures("unasked")
async def test_very_many_containers_are_no_way_around_it(world: World) -> None:
    await until(UNASKED, world, refuses, True)
    many = [container(f"c{i}") for i in range(501)]
    for apps, inits in ((many, []), (many[:1], [*many[1:], container("more")])):
        refused = await world.api.call("POST", world.api.pods, pod(apps, inits, name="many"))
        assert refused.code == 403
        assert refused.message == f'pods "many" is forbidden: {UNASKED_DENIES}: {core.TOO_MANY}'
    both = pod(many[:500], [container(f"i{i}", [effect.own()]) for i in range(500)], name="just")
    made = environments(await world.api.create(world.api.pods, both))
    assert all(env[-1] == effect.VOID for env in made.values())
    assert len(made) == 1000


@pytest.mark.usefixtures("unasked")
async def test_what_is_empty_or_wrong_is_refused_by_the_api_server_itself(world: World) -> None:
    assert (await world.api.call("POST", world.api.pods, pod([], [], name="none"))).code == 422


def _mutator(name: str, namespace: str, patch: str) -> list[Object]:
    """Somebody else's policy."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec: Object = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    kind, version = "MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {"apiVersion": version, "kind": f"{kind}Binding", "metadata": {"name": name},
         "spec": {"policyName": name, "matchResources": selector}},
    ]  # fmt: skip


@pytest.mark.usefixtures("unasked")
async def test_a_container_that_somebody_adds_later_is_told_too_and_nobody_is_told_twice(world: World) -> None:
    patch = (
        "[JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{"
        "name: 'late', image: 'busybox', env: [Object.spec.containers.env{"
        "name: 'NVIDIA_VISIBLE_DEVICES', value: 'all'}]}}]"
    )
    objects = _mutator(LATER, world.api.namespace, patch)  # after gpushare, by its name
    await world.cluster.apply(*objects)
    try:

        async def adds(world: World) -> bool:
            made = await world.api.call("POST", world.api.pods, pod([container("main")], [], name="p"), dryRun="All")
            return "late" in environments(made.body)

        await until(LATER, world, adds, True)
        made = await world.api.create(world.api.pods, pod([container("main")], [], name="p"))
        assert environments(made) == {"main": [effect.VOID], "late": [effect.OWN, effect.VOID]}
    finally:
        for made_object in objects:
            await world.cluster.kubectl("delete", made_object["kind"], made_object["metadata"]["name"])
