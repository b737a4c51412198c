"""The dashboard with the account of deploy/dashboard.yaml: who may log in, what each one sees, and when that ends.

It only reads: the audit log has every request of its account.
"""

import asyncio
import base64
import collections
import contextlib
import json
import time
import zlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gpushare.core.facts import names
from tests.e2e.harness import busy_gpus, objects
from tests.e2e.harness import dashboards as programs
from tests.e2e.harness.dashboards import Reader
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import browser, wait
from tests.support.objects import Object

PATIENCE = 120.0  # seconds; a right that is taken away is to end within 60
FOREIGN = b"foreign"  # in all names of the other team
REVIEWS = {"create tokenreviews", "create subjectaccessreviews"}
TRIED = json.dumps({
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "more"},
    "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {names.GPU_MEM: 7000}}}]},
})  # fmt: skip


async def _account(world: World, name: str, *, nodes: bool, pods: str) -> str:
    """A service account with these rights, and its name as RBAC has it. `pods`: "all", "own" or "none"."""
    namespace, kubectl = world.api.namespace, world.cluster.kubectl
    await kubectl("create", "serviceaccount", name, "-n", namespace)
    whose = f"--serviceaccount={namespace}:{name}"
    for role, verb in (("nodes", nodes), ("pods", pods == "all")):
        if verb:
            made = f"{namespace}-{name}-{role}"
            await kubectl("create", "clusterrole", made, "--verb=list", f"--resource={role}")
            await kubectl("create", "clusterrolebinding", made, f"--clusterrole={made}", whose)
    if pods == "own":
        await kubectl("create", "role", name, "-n", namespace, "--verb=list", "--resource=pods")
        await kubectl("create", "rolebinding", name, "-n", namespace, f"--role={name}", whose)
    return name


@contextlib.asynccontextmanager
async def _accounts(world: World) -> AsyncIterator[None]:
    """tenant: one namespace; everybody: all; nobody: no nodes. What is not in the namespace is deleted afterwards."""
    try:
        await _account(world, "tenant", nodes=True, pods="own")
        await _account(world, "everybody", nodes=True, pods="all")
        await _account(world, "nobody", nodes=False, pods="own")
        yield
    finally:
        for name in ("tenant-nodes", "everybody-nodes", "everybody-pods"):
            for kind in ("clusterrolebinding", "clusterrole"):
                await world.cluster.kubectl("delete", kind, f"{world.api.namespace}-{name}", "--ignore-not-found")


@contextlib.asynccontextmanager
async def _other_team(world: World, nodes: list[str]) -> AsyncIterator[str]:
    """A namespace with pods that run, one that uses too much, one that waits, and an event about them."""
    other = f"{world.api.namespace}-foreign"
    path = f"/api/v1/namespaces/{other}"
    await world.api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    try:
        for name, amount in (("foreign-runs", 2000), ("foreign-eats", 2000), ("foreign-waits", 7500)):
            await world.api.create(f"{path}/pods", objects.pod(name=name, containers={"foreign-main": amount}))
        running = [await _bound(world, f"{path}/pods/{name}") for name in ("foreign-runs", "foreign-eats")]
        everything = [*world.watch.pods.values(), *running]
        for node in nodes:
            await busy_gpus.tell(world, node, everything, busy_gpus.OVER)
        about = {"kind": "Pod", "namespace": other, "name": "foreign-eats", "uid": running[1]["metadata"]["uid"]}
        await world.api.create(f"{path}/events", {
            "metadata": {"name": "foreign-event"}, "involvedObject": about, "type": "Warning", "reason": "OverUse",
            "message": "foreign-eats uses too much", "source": {"component": names.COMPONENT},
            "reportingComponent": names.COMPONENT, "reportingInstance": "x",
        })  # fmt: skip
        yield other
    finally:
        await world.api.call("DELETE", f"{path}/pods", {"gracePeriodSeconds": 0})
        await world.api.call("DELETE", path)


async def _bound(world: World, path: str) -> Object:
    async def placed() -> Object | None:
        pod = (await world.api.get(path)).body
        return pod if pod["spec"].get("nodeName") else None

    return await wait.eventually_asked(placed, f"{path} is bound")


async def _everything(reader: Reader, world: World, nodes: list[str]) -> dict[str, tuple[int, bytes]]:
    """Status, headers and body of every page that a browser can ask for."""
    own = world.api.namespace
    paths = ["api/me", "api/snapshot", "api/waiting", "api/history?range=48h", "api/health", "api/search?q=foreign",
             "api/search?q=o", f"api/search?q={own}-foreign%2F", "api/search?q=main",
             f"api/why/{own}/{busy_gpus.WAITS}", f"api/why/{own}/holds-0"]  # fmt: skip
    for node in nodes:
        paths += [f"api/node/{node}", *(f"api/gpu/{node}/{i}?range=1h" for i in range(len(busy_gpus.GPUS)))]
    found = {path: await reader.get(path) for path in paths}
    found["api/whatif"] = await reader.post("api/whatif", yaml=TRIED, replicas=3, policy="", namespace="default")
    return found


async def test_a_user_of_one_namespace_receives_no_name_of_another(world: World, figures: Figures) -> None:
    cluster = world.cluster
    async with busy_gpus.busy(world) as nodes, _accounts(world), _other_team(world, nodes) as other:
        mark = cluster.audit.mark()
        async with programs.in_cluster(cluster) as dashboard:
            shown = {name: await programs.token(cluster, world.api.namespace, name) for name in ("tenant", "everybody")}
            async with (
                programs.logged_in(dashboard, shown["tenant"]) as tenant,
                programs.logged_in(dashboard, shown["everybody"]) as everybody,
            ):
                streamed = asyncio.create_task(_frames(tenant, 8))
                await world.api.create(
                    f"/api/v1/namespaces/{other}/pods",
                    objects.pod(name="foreign-late", containers={"foreign-main": 500}),
                )
                await _bound(world, f"/api/v1/namespaces/{other}/pods/foreign-late")
                frames = await streamed
                theirs = await _everything(tenant, world, nodes)
                full = await _everything(everybody, world, nodes)
                hidden = [await _refused(tenant, other, name) for name in ("foreign-waits", "foreign-eats", "no-such")]
        requests = [one for one in cluster.audit.since(mark) if one.user.username == programs.USER]
    assert {path: status for path, (status, _) in theirs.items() if status != 200} == {}
    assert [path for path, (_, body) in theirs.items() if FOREIGN in body] == []
    assert not any(FOREIGN in frame for frame in frames)
    assert len(set(hidden)) == 1, "a pod that must not be seen differs from one that is not there"
    seen = [path for path, (_, body) in full.items() if FOREIGN in body]
    assert {path.partition("?")[0].split("/")[1] for path in seen} >= {"node", "gpu", "waiting", "search", "health"}
    used = collections.Counter(f"{one.verb} {one.kind}" for one in requests if one.kind)
    assert {what for what in used if what.split()[0] not in ("get", "list", "watch")} == REVIEWS
    assert [one for one in requests if one.lacks_right] == []
    size = sum(len(body) for _, body in theirs.values()) + sum(map(len, frames))
    figures.say(
        "a dashboard's user of one namespace",
        f"{len(theirs)} answers and {len(frames)} frames, {size} bytes, no name of another team; who may see all finds "
        f"them in {len(seen)} answers; the dashboard's account did {dict(sorted(used.items()))} and lacked no right",
    )


async def _frames(reader: Reader, count: int) -> list[bytes]:
    """Some of the stream, each as it came and as a browser reads it."""
    frames = list[bytes]()
    etag = json.loads((await reader.get("api/snapshot"))[1].partition(b"))")[2])
    async with reader.stream(f"{etag['epoch']}.{etag['seq']}") as stream:
        async for line in stream:
            kind, _, data = line.strip().partition(b": ")
            if kind == b"data" and data:
                frames.append(data + b" " + zlib.decompress(base64.b64decode(data), -zlib.MAX_WBITS))
            if len(frames) == count:
                break
    return frames


async def _refused(reader: Reader, namespace: str, name: str) -> bytes:
    """The answer, without the name that was asked for."""
    status, body = await reader.get(f"api/why/{namespace}/{name}")
    assert status == 404, body
    return body.partition(b"{")[2].replace(name.encode(), b"")


async def test_people_log_in_with_a_token_for_the_dashboard_alone(world: World) -> None:
    if not browser.CHROMIUM:
        pytest.skip("no chromium on this machine")
    cluster, namespace = world.cluster, world.api.namespace
    async with (
        busy_gpus.busy(world, nodes=1),
        _accounts(world),
        programs.in_cluster(cluster) as dashboard,
        browser.looking(dashboard.url, insecure=True) as look,
    ):
        for account, audience, said in (
            ("tenant", "somebody-else", "the API server does not know this token"),
            ("nobody", programs.AUDIENCE, f"system:serviceaccount:{namespace}:nobody may not see the GPUs"),
        ):
            await look.page.goto(dashboard.url)
            await _type(look, await programs.token(cluster, namespace, account, audience))
            await look.shows(said)
            assert await look.context.cookies() == []
        await look.page.goto(dashboard.url)
        await _type(look, await programs.token(cluster, namespace, "tenant"))
        await look.shows("What needs you")
        (cookie,) = await look.context.cookies()
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
        await look.page.get_by_role("button", name="Log out").click()
        await look.page.wait_for_selector("#token")
        assert look.foreign == []


async def _type(look: browser.Look, token: str) -> None:
    await look.page.fill("#token", token)
    await look.page.keyboard.press("Enter")


async def test_a_right_that_is_taken_away_ends_streams(world: World, figures: Figures) -> None:
    """Within a minute, by the constants as they are shipped."""
    cluster, namespace = world.cluster, world.api.namespace
    await world.make_nodes(1, gpus=[8000])
    async with _accounts(world), programs.in_cluster(cluster) as dashboard:
        shown = await programs.token(cluster, namespace, "tenant")
        async with programs.logged_in(dashboard, shown) as tenant, tenant.stream() as stream:
            assert (await tenant.get("api/node/x"))[0] == 404
            begun = time.monotonic()
            await cluster.kubectl("delete", "clusterrolebinding", f"{namespace}-tenant-nodes")
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(aiohttp.ClientPayloadError):  # it may end in the middle
                    said = [line async for line in stream]
            took = time.monotonic() - begun
            status, body = await tenant.get("api/snapshot")
    assert b"event: bye\n" in said
    assert status in (401, 403), body
    figures.say("a right to look that is taken away", f"the stream ended {took:.0f} s later (goal 60)")
