"""A simulated kubelet for every node of the embedded cluster: pods that are bound start, run, end and go. Nothing runs.

It lives in the server's process (`cluster` starts it). What it says about a pod is made in `podstatus`; here is when:
each pod that is bound to a node has a task, which reads as the life of a pod. A container's log is what it was told
when it started, so that `kubectl logs` shows which GPUs it would see. Where device plugins may register, they are asked
before a pod is taken (`deviceplugins`).
"""

import asyncio
import itertools
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.devcluster.apiserver import checks, status
from gpushare.devcluster.apiserver.kinds import quantity, table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry
from gpushare.devcluster.controllers import owned
from gpushare.devcluster.events import Announcer
from gpushare.devcluster.following import Difference, Follower
from gpushare.devcluster.kubelet import podstatus
from gpushare.devcluster.kubelet.podstatus import Run

if TYPE_CHECKING:
    from gpushare.devcluster.kubelet.deviceplugins import DevicePlugins

NODES: Final = table.BY_RESOURCE["nodes"]
PODS: Final = table.BY_RESOURCE["pods"]
MOMENT: Final = 0.5  # seconds a container takes to start, and a pod to end
RESTART_SECONDS: Final = 10.0


class Life:
    """One pod on its node."""

    def __init__(self, pod: Object, host: str, address: str) -> None:
        meta = pod["metadata"]
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.node, self.policy = pod["spec"]["nodeName"], pod["spec"].get("restartPolicy", "Always")
        self.host, self.address, self.has_address = host, address, False
        self.began = ""
        self.runs = podstatus.runs(pod)
        self.told: dict[str, dict[str, str]] = {}  # by container
        self.exits: dict[str, asyncio.Future[int]] = {}  # of the containers that run
        self.task: asyncio.Task[None] | None = None
        self.leaving = False


class Kubelet:
    """`moment`: what starting and ending take. `restart_seconds`: how long a container that crashed waits.

    `folders`: by node, those of the kubelets that let device plugins register. `plugins` has to be entered before
    `run`.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        moment: float = MOMENT,
        restart_seconds: float = RESTART_SECONDS,
        folders: Mapping[str, Path] | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._registry, self._store = server.registry, server.store
        self._follower = Follower(server.store, server.hub, ("nodes", PODS.resource))
        self._say = Announcer(server.registry, "kubelet").say
        self._moment, self._restart_seconds = moment, restart_seconds
        self._lives: dict[str, Life] = {}  # by uid
        self._numbers: dict[str, itertools.count[int]] = {}  # by node, for addresses
        self._tasks = asyncio.TaskGroup()
        self.plugins = self._for_plugins(folders or {}, dice or random.Random())  # by node

    async def run(self) -> None:
        """Until cancelled."""
        async with self._tasks:
            for node, plugins in self.plugins.items():
                self._tasks.create_task(plugins.run(partial(self._report, node)))
            while True:
                for difference in await self._follower.differences():
                    self._see(difference)

    def finish(self, namespace: str, name: str, code: int = 0) -> int:
        """The containers of a pod that run end now, with this exit code. How many do."""
        lives = (life for life in self._lives.values() if (life.namespace, life.name) == (namespace, name))
        ending = [exit_ for life in lives for exit_ in life.exits.values() if not exit_.done()]
        for exit_ in ending:
            exit_.set_result(code)
        return len(ending)

    def logs(self, namespace: str, name: str, container: str) -> str:
        """NAME=value lines: the environment of a container that has been started."""
        pod = checks.stored(PODS, self._registry.get(PODS, namespace, name))
        known = [run.name for run in podstatus.runs(pod)]
        if not container and len(known) != 1:
            choice = " ".join(known)
            raise status.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choice}]")
        container = container or known[0]
        if container not in known:
            raise status.bad_request(f"container {container} is not valid for pod {name}")
        life = self._lives.get(pod["metadata"]["uid"])
        if life is None or container not in life.told:
            raise status.bad_request(f'container "{container}" in pod "{name}" is waiting to start')
        return "".join(f"{key}={value}\n" for key, value in life.told[container].items())

    def _for_plugins(self, folders: Mapping[str, Path], dice: random.Random) -> "dict[str, DevicePlugins]":
        if not folders:
            return {}
        from gpushare.devcluster.kubelet.deviceplugins import DevicePlugins  # gRPC is large, and most do without it

        return {node: DevicePlugins(folder, partial(self._active, node), dice) for node, folder in folders.items()}

    # What is seen

    def _see(self, difference: Difference) -> None:
        if difference.resource == "nodes":
            self._see_node(difference)
        elif difference.after:
            self._look(difference.after)
        elif difference.before:
            self._forget(difference.before.uid)

    def _see_node(self, difference: Difference) -> None:
        if difference.after is None and difference.before:
            for life in list(self._lives.values()):
                if life.node == difference.before.key:
                    self._forget(life.uid)
        elif difference.before is None:  # a new node may have pods already
            for entry in list(self._store.shelf(PODS.resource).entries.values()):
                self._look(entry)

    def _look(self, entry: Entry) -> None:
        pod, life = checks.stored(PODS, entry), self._lives.get(entry.uid)
        node = self._store.get("nodes", pod["spec"].get("nodeName") or "")
        if node is None:
            return
        if owned.leaving(pod):
            self._end(pod, life)
        elif life is None and owned.phase(pod) not in owned.ENDED:
            life = self._lives[entry.uid] = Life(pod, _internal_ip(node.obj()), self._address(node.key))
            life.task = self._tasks.create_task(self._live(life))

    def _end(self, pod: Object, life: Life | None) -> None:
        """A pod that is deleted ends after a moment, and is deleted for good."""
        if life is None:
            life = self._lives[pod["metadata"]["uid"]] = Life(pod, "", "")
        if life.leaving:
            return
        if life.task:
            life.task.cancel()
        life.leaving = True
        life.task = self._tasks.create_task(self._leave(life, pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def _forget(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life and life.task:
            life.task.cancel()

    # The life of a pod

    async def _live(self, life: Life) -> None:
        life.began = self._registry.now()
        if why := await self._refusal(life):
            self._reject(life, why)
            return
        self._write(life)
        await asyncio.sleep(self._moment)
        life.has_address = True
        for run in life.runs:
            if run.sidecar:
                self._start(life, run)
            elif run.init:
                await self._run(life, run)
                if run.code:
                    return  # the pod has failed
        async with asyncio.TaskGroup() as containers:
            for run in life.runs:
                if not run.init:
                    containers.create_task(self._run(life, run))
        for run in life.runs:
            if run.sidecar:
                run.end(0, self._registry.now())
        self._write(life)

    async def _refusal(self, life: Life) -> str:
        """Why the node's device plugins do not let the pod run; mostly empty. What was asked of them is carried out
        even if the pod goes meanwhile."""
        pod, plugins = self._read(life), self.plugins.get(life.node)
        if pod is None or plugins is None:
            return ""
        return await asyncio.shield(self._tasks.create_task(plugins.admit(pod)))

    async def _run(self, life: Life, run: Run) -> None:
        """One container, until it has ended for good."""
        while True:
            self._start(life, run)
            run.end(await self._exit(life, run), self._registry.now())
            if not podstatus.restarts(run, life.policy):
                self._write(life)
                return
            run.wait_again()
            self._write(life)
            await asyncio.sleep(self._restart_seconds)

    def _start(self, life: Life, run: Run) -> None:
        pod = self._read(life)
        if pod is None:
            return  # gone a moment ago; this life is about to be told
        run.start(self._registry.now())
        self._write(life)
        plugins = self.plugins.get(life.node)
        given = plugins.environment(life.uid, run.name) if plugins else {}
        life.told[run.name] = given | podstatus.environment(self._read(life) or pod, run)  # the pod's own word wins
        part = f"spec.{run.field}{{{run.name}}}"
        self._say(PODS, pod, "Started", "Container started (simulated)", part=part, host=life.node)

    async def _exit(self, life: Life, run: Run) -> int:
        """Waits until the container ends: after its time, or when it is told to."""
        seconds, code = podstatus.lifetime(run)
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        life.exits[run.name] = told
        try:
            async with asyncio.timeout(seconds):
                return await told
        except TimeoutError:
            return code
        finally:
            del life.exits[run.name]

    async def _leave(self, life: Life, grace: int) -> None:
        if pod := self._read(life):
            for run in life.runs:
                if run.running:
                    part = f"spec.{run.field}{{{run.name}}}"
                    self._say(PODS, pod, "Killing", f"Stopping container {run.name}", part=part, host=life.node)
        await asyncio.sleep(min(self._moment, grace))
        if self._read(life):
            self._registry.delete(PODS, life.namespace, life.name, {"gracePeriodSeconds": 0})

    # What is read and written

    def _read(self, life: Life) -> Object | None:
        entry = self._store.get(PODS.resource, table.key(PODS, life.namespace, life.name))
        return checks.stored(PODS, entry) if entry and entry.uid == life.uid else None

    def _write(self, life: Life) -> None:
        pod = self._read(life)
        if pod is None:
            return
        address = life.address if life.has_address else ""
        said = podstatus.status(life.runs, started=life.began, address=address, host=life.host)
        said["conditions"] = owned.with_conditions(pod["status"], said["conditions"], self._registry.now())
        self._registry.update(PODS, life.namespace, life.name, pod | {"status": pod["status"] | said}, "status")

    def _reject(self, life: Life, why: str) -> None:
        """For good: nobody tries this pod again."""
        pod = self._read(life)
        if pod is None:
            return
        said = podstatus.rejected(why, started=life.began)
        self._registry.update(PODS, life.namespace, life.name, pod | {"status": pod["status"] | said}, "status")
        self._say(PODS, pod, said["reason"], why, host=life.node, type_="Warning")

    def _report(self, name: str, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> None:
        """The node says what its device plugins list, whoever wrote something else there."""
        entry = self._store.get(NODES.resource, name)
        if entry is None:
            return
        node, listed = checks.stored(NODES, entry), {r: quantity.canonical(n) for r, n in allocatable.items()}
        has = node["status"].get("capacity") or {}
        wanted = has | {resource: quantity.canonical(count) for resource, count in capacity.items()}
        if wanted != has or self._registry.listed.get(name, {}) != listed:
            self._registry.listed[name] = listed
            self._registry.update(NODES, "", name, node | {"status": node["status"] | {"capacity": wanted}}, "status")

    def _active(self, node: str) -> list[Object]:
        """The pods of a node that have not ended."""
        pods = [self._read(life) for life in self._lives.values() if life.node == node]
        return [pod for pod in pods if pod is not None and owned.phase(pod) not in owned.ENDED]

    def _address(self, node: str) -> str:
        """One that no other pod has, as long as nobody makes 60,000 of them on one node."""
        if node not in self._numbers:
            self._numbers[node] = itertools.count()
        number = next(self._numbers[node]) % (250 * 250)
        subnet = list(self._numbers).index(node) % 100
        return f"10.{100 + subnet}.{number // 250}.{number % 250 + 1}"


def _internal_ip(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((found.get("address", "") for found in addresses if found.get("type") == "InternalIP"), "")
