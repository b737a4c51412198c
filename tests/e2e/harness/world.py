"""The world of one test: nodes and a namespace of its own, and a watch of its pods.

All of it is deleted after the test, so that the next test finds an empty cluster.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp
from prometheus_client import parser

from gpushare.core.facts import names
from tests.e2e.harness import audit, objects, shipped
from tests.e2e.harness.cluster import ADMIN, URL, Cluster
from tests.support import api_client, pod_watch
from tests.support.api_client import Answer, Api
from tests.support.objects import Object
from tests.support.tasks import beside

AT_ONCE = 16  # requests of ours
Work = Callable[[], Awaitable[object]]
Sample = tuple[str, frozenset[tuple[str, str]]]


class World:
    def __init__(self, cluster: Cluster, api: Api, shown: pod_watch.PodWatch) -> None:
        self.cluster, self.api, self.watch = cluster, api, shown
        self.nodes: dict[str, list[int]] = {}  # the sizes of each node's GPUs
        self.asked: dict[str, Object] = {}  # by pod, the words it was made from
        self._numbers = itertools.count()
        self._slots = asyncio.Semaphore(AT_ONCE)

    # Nodes and pods

    async def make_nodes(self, count: int = 1, **words: Any) -> list[str]:
        """Nodes in the words of a scenario: gpus=[16000, 16000], pin="direct". Their names are unique."""
        return await self.make_various_nodes([words] * count)

    async def make_various_nodes(self, various: Sequence[Mapping[str, Any]]) -> list[str]:
        """One node for each of these words."""
        begin = self.api.namespace.removeprefix("behaviour-")
        made = {f"{begin}-{next(self._numbers):04}": words for words in various}
        await self._all(
            partial(self.api.create, "/api/v1/nodes", objects.node(n, **words)) for n, words in made.items()
        )
        self.nodes |= {name: list(words.get("gpus", [])) for name, words in made.items()}
        await self._until_untainted(set(made))
        return list(made)

    async def make_pods(self, *pods: Object) -> list[str]:
        """Pods in the words of a scenario, created side by side."""
        for priority in {words.get("priority", 0) for words in pods} - {0}:
            await self.cluster.apply(objects.priority_class(priority))
        self.asked |= {words["name"]: words for words in pods}
        await self._all(partial(self.api.create, self.api.pods, self.pod_of(words)) for words in pods)
        return [words["name"] for words in pods]

    def pod_of(self, words: Object) -> Object:
        return objects.pod(**words)

    async def delete_pod(self, name: str, grace: int = 0) -> None:
        await self._expect(200, "DELETE", f"{self.api.pods}/{name}", {"gracePeriodSeconds": grace})

    async def patch(self, path: str, patch: Object) -> None:
        answer = await self.api.patch(path, patch)
        assert answer.code == 200, answer.body

    @contextlib.asynccontextmanager
    async def anew(self) -> AsyncIterator["World"]:
        """Another, empty world."""
        async with connected(self.cluster) as api, opened(self.cluster, api) as world:
            yield world

    async def clean_up(self) -> None:
        await self.api.call("DELETE", self.api.pods, {"gracePeriodSeconds": 0})
        await self._all(partial(self.api.call, "DELETE", f"/api/v1/nodes/{name}") for name in self.nodes)
        await self.watch.until("all pods gone", lambda: not self.watch.pods, 30)

    async def _until_untainted(self, wanted: set[str]) -> None:
        """A new node is tainted until the controller manager has seen that it is ready."""
        async with asyncio.timeout(120):
            while True:
                items = (await self.api.get("/api/v1/nodes")).body["items"]
                if wanted <= {item["metadata"]["name"] for item in items if not item["spec"].get("taints")}:
                    return
                await asyncio.sleep(0.05 + len(wanted) / 1000)  # a list of many is no small thing to ask for

    @contextlib.asynccontextmanager
    async def kubelets(self, ending_seconds: float = 0.0) -> AsyncIterator[None]:
        """Does what kubelets do: bound pods run, and pods that are being deleted end, by default at once."""
        async with beside(self._kubelets(ending_seconds)):
            yield

    async def _kubelets(self, ending_seconds: float) -> None:
        async with asyncio.TaskGroup() as lives:
            await self._keep_pods(ending_seconds, lives)

    async def _keep_pods(self, ending_seconds: float, lives: asyncio.TaskGroup) -> None:
        running, ending = set[str](), set[str]()
        while True:
            todo, seen = list[Work](), self.watch.events
            for name, pod in self.watch.pods.items():
                uid, path = pod["metadata"]["uid"], f"{self.api.pods}/{name}"
                if pod_watch.node_of(pod) not in self.nodes:
                    continue
                if "deletionTimestamp" in pod["metadata"] and uid not in ending:
                    ending.add(uid)
                    lives.create_task(self._end_pod(path, uid, ending_seconds))
                elif pod["status"]["phase"] == "Pending" and uid not in running:
                    running.add(uid)
                    todo.append(partial(self.api.patch, f"{path}/status", _running(pod)))
            await self._all(todo)
            async with self.watch.changed:
                await self.watch.changed.wait_for(lambda seen=seen: self.watch.events != seen)  # type: ignore[misc]

    async def _end_pod(self, path: str, uid: str, after: float) -> None:
        await asyncio.sleep(after)
        async with self._slots:
            await self.api.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    # What can be counted

    def requests(self, mark: int) -> list[audit.Request]:
        """Requests about this namespace since the mark, without those of the tests."""
        return [
            request
            for request in self.cluster.audit.since(mark)
            if request.object_ref.namespace == self.api.namespace and request.user.username != "admin"
        ]

    async def ask(self, verb: str, body: object = None, port: int = shipped.EXTENDER_PORT) -> Any:
        """The extender's answer, as a scheduler or `inspect` gets it."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                "GET" if body is None else "POST", f"http://127.0.0.1:{port}/gpushare-scheduler/{verb}", json=body
            ) as response,
        ):
            return await response.json()

    async def metrics(self, port: int = shipped.EXTENDER_PORT) -> "Metrics":
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as response,
        ):
            return Metrics(await response.text())

    def granted(self) -> dict[tuple[str, int], int]:
        """Units by node and GPU, from the annotations of bound pods. Checks that each pod has what it asked for."""
        taken: dict[tuple[str, int], int] = {}
        for name, pod in self.watch.pods.items():
            node = pod_watch.node_of(pod)
            if node:
                allocation = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])
                _check_allocation(name, self.asked[name], allocation, self.nodes[node])
                for shares in allocation.values():
                    for gpu, units in shares.items():
                        taken[node, int(gpu)] = taken.get((node, int(gpu)), 0) + units
        return taken

    def check_capacity(self) -> None:
        """Checks that no GPU is over-committed."""
        for (node, gpu), units in self.granted().items():
            assert units <= self.nodes[node][gpu], f"{node} GPU {gpu}: {units} of {self.nodes[node][gpu]} given"

    async def _expect(self, code: int, method: str, path: str, body: object = None) -> Answer:
        answer = await self.api.call(method, path, body)
        assert answer.code == code, answer.body
        return answer

    async def _all(self, works: Iterable[Work]) -> None:
        async def one(work: Work) -> None:
            async with self._slots:
                await work()

        await asyncio.gather(*map(one, works))


@contextlib.asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[Api]:
    """A client with a namespace of its own."""
    async with api_client.connect(URL, cluster.tokens[ADMIN], str(cluster.ca)) as api:
        # Every namespace gets this from a controller; after that nothing happens in ours that we do not do.
        while (await api.get(f"{api.configmaps}/kube-root-ca.crt")).code == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        yield api


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, api: Api) -> AsyncIterator[World]:
    """It is deleted afterwards, whatever happened."""
    shown = pod_watch.PodWatch(api)
    watching = asyncio.create_task(shown.run())
    world = World(cluster, api, shown)
    try:
        yield world
    finally:
        try:
            assert not watching.done(), watching.exception()
            await world.clean_up()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


def gpus_of(pod: Object) -> dict[int, int]:
    """The units of a bound pod, by GPU."""
    taken: dict[int, int] = {}
    for shares in json.loads(pod["metadata"]["annotations"][names.ALLOCATION]).values():
        for gpu, units in shares.items():
            taken[int(gpu)] = taken.get(int(gpu), 0) + units
    return taken


class Metrics:
    """One scrape: `metrics("gpushare_holds_total", outcome="wrong")`. A metric that is missing is 0."""

    def __init__(self, text: str) -> None:
        self._samples: dict[Sample, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0.0)


def _check_allocation(name: str, asked: Object, allocation: Mapping[str, Mapping[str, int]], gpus: list[int]) -> None:
    """Checks that each container has its amount, on as many GPUs as it asked for."""
    for position, words in enumerate(asked["containers"].values()):
        shares = allocation.get(str(position), {})
        if isinstance(words, dict):
            expected = sorted(gpus[int(gpu)] for gpu in shares)
            assert (len(shares), sorted(shares.values())) == (words["count"], expected), f"{name}: {allocation}"
        else:
            split = asked.get("split", 1)
            assert sorted(shares.values()) == [words // split] * split, f"{name}: {allocation}"


def _running(pod: Object) -> Object:
    statuses = [
        {"name": container["name"], "ready": True, "started": True, "restartCount": 0, "image": "", "imageID": "",
         "state": {"running": {}}}
        for container in pod["spec"]["containers"]
    ]  # fmt: skip
    return {"status": {"phase": "Running", "containerStatuses": statuses}}
