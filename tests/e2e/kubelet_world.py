"""One test's part of the real node: pods that run, what their containers see, and what must be true of them.

Made by `tenants` for every test on the real node. All its pods print their environment when they start, so that each
container's GPUs are read from the container itself. When a test ends, whatever still runs is checked, all is deleted,
and nothing may stay taken.
"""

import asyncio
import collections
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping

from gpushare.core import names
from tests.devcluster.support import Api
from tests.e2e import objects, sight
from tests.e2e.cluster import NODE
from tests.e2e.containers_images import SMALL
from tests.e2e.kubelet_stage import Stage
from tests.e2e.world import World, gpus_of
from tests.scenarios.objects import Object

RUNNING_SECONDS = 60.0
GONE_SECONDS = 60.0
FREE_SECONDS = 20.0
GRACE = 5  # seconds
STAY = ["sh", "-c", "env; trap 'exit 0' TERM; sleep infinity & wait"]
END = ["sh", "-c", "env"]


class Tenants(World):
    """Pods are written in the words of a scenario; `command` says what the containers do, if not staying."""

    def __init__(self, stage: Stage, api: Api, shown: sight.Sight) -> None:
        super().__init__(stage.cluster, api, shown)
        self.stage, self.node = stage, stage.node
        self.wrongs: list[str] = []  # over-commitment, at whichever moment
        shown.listeners.append(self._count)
        self._held: dict[str, dict[int, int]] = {}  # by uid

    async def run(self, *pods: Object) -> None:
        """Until each of them runs."""
        await self.make_pods(*pods)
        await self.until_running(*(words["name"] for words in pods))

    async def until_running(self, *pods: str, seconds: float = RUNNING_SECONDS) -> None:
        await self.sight.until(
            f"{', '.join(pods)} run", lambda: all(is_running(self.sight.pods.get(pod)) for pod in pods), seconds
        )

    async def delete(self, *pods: str) -> None:
        """They are asked to end, and have some seconds for it."""
        for pod in pods:
            answer = await self.api.call("DELETE", f"{self.api.pods}/{pod}", {"gracePeriodSeconds": GRACE})
            assert answer.code in (200, 404), answer.body
        await self.sight.until("gone", lambda: not set(pods) & self.sight.pods.keys(), GONE_SECONDS)

    async def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """Of the container's first process, as it printed it when it last started."""
        answer = await self.api.get(f"{self.api.pods}/{pod}/log", container=container)
        assert answer.code == 200, answer.body
        return dict(line.split("=", 1) for line in answer.body.decode().splitlines() if "=" in line)

    async def sees(self, pod: str, container: str = "main") -> list[str]:
        """The GPUs that a container is told of."""
        told = (await self.environment(pod, container)).get(names.VISIBLE_DEVICES, "")
        return [uuid for uuid in told.split(",") if uuid]

    # What must be true

    async def check(self) -> None:
        """Of all pods that run: their annotations are what their containers see, and no GPU has given too much."""
        assert self.wrongs == []
        for name, pod in list(self.sight.pods.items()):
            if is_running(pod) and not is_ending(pod) and names.ALLOCATION in pod["metadata"].get("annotations", {}):
                await self.check_pod(name)

    async def check_pod(self, name: str) -> None:
        """Its containers see exactly the GPUs that its annotations say."""
        uuids, pod = await self.stage.uuids(), self.sight.pods[name]
        allocation = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])
        assert pod["metadata"]["annotations"][names.ALIYUN_ASSIGNED] == "true", name
        for position, container in enumerate(pod["spec"]["containers"]):
            if asks(container):
                given = {uuids[int(gpu)] for gpu in allocation[str(position)]}
                assert set(await self.sees(name, container["name"])) == given, f"{name}: {allocation}"
        for container in pod["spec"].get("initContainers", ()):
            if asks(container):
                seen = await self.sees(name, container["name"])
                assert seen, f"{name}: init container {container['name']} sees no GPU"
                assert set(seen) <= {uuids[gpu] for gpu in gpus_of(pod)}, f"{name}: {allocation}"

    async def until_free(self) -> None:
        """Nothing is taken any more, says the extender."""
        patience_ends = time.monotonic() + FREE_SECONDS
        while taken := await self._taken():
            assert time.monotonic() < patience_ends, f"nobody is left, but taken are {taken}"
            await asyncio.sleep(0.1)

    async def _taken(self) -> dict[int, int]:
        (node,) = (node for node in (await self.ask("inspect"))["nodes"] if node["name"] == NODE)
        return {gpu["id"]: gpu["usedGPU"] for gpu in node["devs"] if gpu["usedGPU"]}

    def _count(self, type_: str, pod: Object) -> None:
        """At every version of every pod: no GPU has given more than it has."""
        uid, over = pod["metadata"]["uid"], pod["status"]["phase"] in ("Succeeded", "Failed")
        self._held.pop(uid, None)
        annotations = pod["metadata"].get("annotations", {})
        if type_ == "DELETED" or over or not sight.node_of(pod) or names.ALLOCATION not in annotations:
            return
        self._held[uid] = gpus_of(pod)
        given = collections.Counter[int]()
        for shares in self._held.values():
            given.update(shares)
        self.wrongs += [
            f"GPU {gpu}: {units} of {self.stage.gpus[gpu]} given when {pod['metadata']['name']} came"
            for gpu, units in given.items()
            if units > self.stage.gpus[gpu]
        ]

    async def clean_up(self) -> None:
        await self.delete(*self.sight.pods)
        await self.until_free()
        assert self.wrongs == []

    def _object(self, words: Object) -> Object:
        command = words.get("command")
        made = objects.pod(**{word: value for word, value in words.items() if word != "command"})
        spec = made["spec"]
        spec["terminationGracePeriodSeconds"] = GRACE
        for container in spec["containers"]:
            container |= {"image": SMALL, "command": command or STAY}
        for container in spec["initContainers"]:
            container |= {"image": SMALL, "command": STAY if "restartPolicy" in container else END}
        return made


@contextlib.asynccontextmanager
async def tenants(stage: Stage, api: Api) -> AsyncIterator[Tenants]:
    shown = sight.Sight(api)
    watching = asyncio.create_task(shown.run())
    try:
        world = Tenants(stage, api, shown)
        yield world
        await world.check()
        await world.clean_up()
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def is_running(pod: Mapping[str, Object] | None) -> bool:
    """All its containers are."""
    return pod is not None and pod["status"]["phase"] == "Running" and all(s["ready"] for s in statuses(pod))


def is_ending(pod: Mapping[str, Object]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def statuses(pod: Mapping[str, Object]) -> list[Object]:
    return list(pod["status"].get("containerStatuses", ()))


def asks(container: Object) -> bool:
    limits = container.get("resources", {}).get("limits", {})
    return names.GPU_MEM in limits or names.GPU_COUNT in limits
