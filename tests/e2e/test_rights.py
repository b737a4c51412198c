"""What deploy/ grants: a real API server takes every file, no right is missing, and none is there for nothing."""

import asyncio
import collections
import contextlib
import time
from collections.abc import Iterable

import aiohttp
import pytest

from gpushare.core.explain import event_texts
from gpushare.core.facts import names
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy, Plan
from tests.e2e.harness import audit, events, gpunodes, objects, shipped, users
from tests.e2e.harness.cluster import URL, Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support.wait import eventually_asked

FILES = sorted(str(path.relative_to(shipped.DEPLOY)) for path in (*shipped.DEPLOY.glob("*.yaml"),
                                                                   *shipped.DEPLOY.glob("crds/*.yaml")))  # fmt: skip
MAPS = f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps"
ACCOUNT = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{shipped.EXTENDER}"
LOOKER = "looker"
PATIENCE = 20.0  # seconds
TURNS, SETTLING = 10, 1.5  # seconds; a refused pod is not asked about again before a second has passed
OF_EVERYBODY = {"authentication.k8s.io", "authorization.k8s.io"}  # groups in which anybody may ask about themselves
Right = tuple[str, str, str]  # where ("" is everywhere), what, which verb


@pytest.mark.parametrize("file", FILES)
async def test_the_api_server_takes_every_file_we_ship(cluster: Cluster, file: str) -> None:
    said = await cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", shipped.DEPLOY / file)
    lines = said.splitlines()
    assert len(lines) == len(shipped.documents(file)), said
    assert all(line.endswith("(server dry run)") for line in lines), said


async def test_the_extender_uses_every_right_it_has_and_misses_none(world: World, figures: Figures) -> None:
    """A binding whose answer is lost makes it read the pod; a GPU that recovers, which no scheduler sees, makes it
    touch one, unless the scheduler happens to ask again at that very moment: then another GPU becomes unhealthy."""
    cluster = world.cluster
    (node,) = await world.make_nodes(1, gpus=[8000, 8000])
    unhealthy = names.UNHEALTHY_PREFIX + node
    await world.api.create(MAPS, {"metadata": {"name": unhealthy}, "data": {names.UNHEALTHY_KEY: "1"}})
    mark = cluster.audit.mark()
    losing = Plan(rates={plan.LOST_REPLY: 1.0}, eligible=lambda _, path: path.endswith("/lost/binding"))
    async with FaultProxy(URL, losing, ssl=cluster.trust()) as proxy:
        answer = await cluster.call("POST", f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 3600}})
        config = cluster.kubeconfig("extender-through-proxy", answer["status"]["token"], proxy.url)
        async with (
            gpunodes.installed(cluster), cluster.extender(shipped.metrics_word(), kubeconfig=config),
            cluster.scheduler(), world.kubelets(),
        ):  # fmt: skip
            await _check_its_own_account_may_not_read_metrics(answer["status"]["token"])
            await world.make_pods({"name": "lost", "containers": {"main": 5000}})
            await world.watch.until_bound("lost", seconds=20)
            for turn in range(TURNS):
                await world.make_pods({"name": f"waits-{turn}", "containers": {"main": 6000}})
                await world.watch.until_refused(f"waits-{turn}", seconds=20)
                await asyncio.sleep(SETTLING)
                await world.api.call("DELETE", f"{MAPS}/{unhealthy}")
                await world.watch.until_bound(f"waits-{turn}", seconds=20)
                if (await world.metrics())("gpushare_wake_ups_total"):
                    break
                await world.api.create(MAPS, {"metadata": {"name": unhealthy}, "data": {names.UNHEALTHY_KEY: "1"}})
                await world.delete_pod(f"waits-{turn}")
            await events.until_event(world, f"waits-{turn}", event_texts.ASSIGNED)
        assert proxy.counts[plan.LOST_REPLY] == 1
    world.check_capacity()

    granted = _granted()
    patience_ends = time.monotonic() + PATIENCE
    while unused := _unused(granted, requests := _of_extender(cluster, mark)):
        assert time.monotonic() < patience_ends, f"granted, and never used: {unused}"
        await asyncio.sleep(0.2)  # a watch is logged when it has ended
    assert [r for r in requests if r.lacks_right] == []
    used = collections.Counter(f"{request.verb} {request.kind}" for request in requests if request.kind)
    figures.say(
        "rights of the extender",
        f"{len(granted)} granted, all of them used, 0 requests refused; {dict(sorted(used.items()))}",
    )


async def _check_its_own_account_may_not_read_metrics(token: str) -> None:
    """To say so, the extender asks the API server whose the token is, and what that one may."""

    async def refused() -> bool:
        url, bearer = f"https://{shipped.EXTENDER_METRICS}/metrics", {"Authorization": f"Bearer {token}"}
        with contextlib.suppress(aiohttp.ClientConnectionError):  # it is still making its certificate
            async with aiohttp.ClientSession() as session, session.get(url, ssl=False, headers=bearer) as response:
                assert (response.status, "gpushare-metrics" in await response.text()) == (403, True)
                return True
        return False

    await eventually_asked(refused, "the port for Prometheus", PATIENCE)


def _granted() -> set[Right]:
    return {
        (document["metadata"].get("namespace", ""), resource, verb)
        for document in shipped.rights()
        if document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _of_extender(cluster: Cluster, mark: int) -> list[audit.Request]:
    return [request for request in cluster.audit.since(mark) if request.user.username == shipped.EXTENDER_USER]


def _unused(granted: set[Right], requests: Iterable[audit.Request]) -> set[Right]:
    done = [request for request in requests if request.response_status.code < 400]
    everywhere = {("", request.kind, request.verb) for request in done}
    return granted - everywhere - {(request.object_ref.namespace, request.kind, request.verb) for request in done}


async def test_people_with_the_view_role_see_what_they_need_and_change_nothing(world: World, figures: Figures) -> None:
    (node,) = await world.make_nodes(1, gpus=[8000])
    await world.make_pods({"name": "train", "containers": {"main": 1000}, "scheduler": "nobody"})
    kubectl, file = world.cluster.kubectl, shipped.DEPLOY / "view-rbac.yaml"
    await kubectl("apply", "-f", file)
    await kubectl("create", "clusterrolebinding", LOOKER, "--clusterrole=gpushare-view", f"--user={LOOKER}")
    try:
        for kind, shown in (("nodes", node), ("pods", "train"), ("events", "")):
            listed = await kubectl(f"--as={LOOKER}", "get", kind, "--all-namespaces")
            assert shown in listed
            await kubectl(f"--as={LOOKER}", "get", "--raw", f"/api/v1/{kind}?watch=true&timeoutSeconds=1")
        refused = await _refused_to(world, LOOKER, node)
        rules = await _rules_of(world, LOOKER)
    finally:
        await kubectl("delete", "clusterrolebinding", LOOKER)
        await kubectl("delete", "-f", file)
    assert rules == {
        *((kind, verb) for kind in ("nodes", "pods", "events", "gpunodes") for verb in ("get", "list", "watch")),
        ("namespaces", "get"),
        *((f"mutatingadmission{kind}", verb) for kind in ("policies", "policybindings") for verb in ("get", "list")),
        *(("mutatingwebhookconfigurations", verb) for verb in ("get", "list")),
    }
    figures.say("the view role", f"nodes, pods and events read; {refused} kinds of writes tried, all refused")


async def _refused_to(world: World, user: str, node: str) -> int:
    """How many writes were tried. All must be refused."""
    pod, of_node = f"{world.api.pods}/train", f"/api/v1/nodes/{node}"
    note = {"metadata": {"annotations": {"note": "mine"}}}
    async with users.acting_as(world, user) as person:
        answers = [
            await person.call("POST", person.pods, objects.pod(name="another")),
            await person.call("DELETE", pod),
            await person.call("DELETE", person.pods),
            await person.call("POST", f"{pod}/eviction", {"metadata": {"name": "train"}}),
            await person.bind("train", node),
            await person.patch(pod, note),
            await person.patch(f"{pod}/status", note),
            await person.patch(of_node, note),
            await person.patch(f"{of_node}/status", note),
            await person.call("DELETE", of_node),
            await person.call("POST", person.events, {"metadata": {"name": "rumour"}}),
            await person.call("POST", person.configmaps, {"metadata": {"name": "settings"}}),
        ]
    assert [answer.code for answer in answers] == [403] * len(answers)
    return len(answers)


async def _rules_of(world: World, user: str) -> set[tuple[str, str]]:
    """What this user may do, and not everybody: resource and verb."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    async with users.acting_as(world, user) as person:
        answer = await person.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    rules = (r for r in answer.body["status"]["resourceRules"] if not OF_EVERYBODY & set(r["apiGroups"]))
    return {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
