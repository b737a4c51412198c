"""A simulated kubelet for every node of the embedded cluster: it starts and ends the pods that are bound to its node.

It runs in the server's process and follows the store. `pod_life` is the life of one pod. On nodes where device plugins
may register they are asked before a pod is admitted (`deviceplugins`), and the node's status shows what they list.
"""

import asyncio
import itertools
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver import checks, status
from gpushare.devcluster.apiserver.kinds import quantity, table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry
from gpushare.devcluster.events import EventWriter
from gpushare.devcluster.following import Difference, Follower
from gpushare.devcluster.kubelet import podstatus
from gpushare.devcluster.kubelet.pod_life import PODS, Context, PodLife

if TYPE_CHECKING:
    from gpushare.devcluster.kubelet.deviceplugins import DevicePlugins

NODES: Final = table.BY_RESOURCE["nodes"]
MOMENT: Final = 0.5  # seconds a container takes to start, and a pod to end
RESTART_SECONDS: Final = 10.0  # how long a crashed container waits


class Kubelet:
    """All kubelets of the cluster. `folders`: by node, kubelet's folder where device plugins may register. `plugins`
    has to be entered before `run`. `dice` decide what a kubelet leaves to chance."""

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
        self._lives: dict[str, PodLife] = {}  # by uid
        self._addresses: dict[str, itertools.count[int]] = {}  # by node
        self.plugins = self._for_plugins(folders or {}, dice or random.Random())  # by node
        events = EventWriter(server.registry, "kubelet")
        self._tasks = asyncio.TaskGroup()
        self._context = Context(server.registry, events, moment, restart_seconds, self.plugins, self._tasks)

    async def run(self) -> None:
        """Until cancelled."""
        async with self._tasks:
            for node, plugins in self.plugins.items():
                self._tasks.create_task(plugins.run(partial(self._report, node)))
            while True:
                for difference in await self._follower.differences():
                    self._observe(difference)

    def finish(self, namespace: str, name: str, code: int = 0) -> int:
        """Ends the running containers of a pod with this exit code. Returns how many there were."""
        lives = (life for life in self._lives.values() if (life.namespace, life.name) == (namespace, name))
        ending = [exit_ for life in lives for exit_ in life.exits.values() if not exit_.done()]
        for exit_ in ending:
            exit_.set_result(code)
        return len(ending)

    def logs(self, namespace: str, name: str, container: str) -> str:
        """NAME=value lines: the environment of a container that has been started."""
        pod = checks.stored(PODS, self._registry.get(PODS, namespace, name))
        containers = [run.name for run in podstatus.runs(pod)]
        if not container and len(containers) != 1:
            choice = " ".join(containers)
            raise status.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choice}]")
        container = container or containers[0]
        if container not in containers:
            raise status.bad_request(f"container {container} is not valid for pod {name}")
        life = self._lives.get(pod["metadata"]["uid"])
        if life is None or container not in life.environments:
            raise status.bad_request(f'container "{container}" in pod "{name}" is waiting to start')
        return "".join(f"{key}={value}\n" for key, value in life.environments[container].items())

    def _for_plugins(self, folders: Mapping[str, Path], dice: random.Random) -> "dict[str, DevicePlugins]":
        if not folders:
            return {}
        from gpushare.devcluster.kubelet.deviceplugins import DevicePlugins  # gRPC is large and mostly not needed

        return {node: DevicePlugins(folder, partial(self._active, node), dice) for node, folder in folders.items()}

    def _observe(self, difference: Difference) -> None:
        if difference.resource == "nodes":
            self._observe_node(difference)
        elif difference.after:
            self._observe_pod(difference.after)
        elif difference.before:
            self._forget(difference.before.uid)

    def _observe_node(self, difference: Difference) -> None:
        if difference.after is None and difference.before:
            for life in list(self._lives.values()):
                if life.node == difference.before.key:
                    self._forget(life.uid)
        elif difference.before is None:  # a new node may have pods already
            for entry in list(self._store.shelf(PODS.resource).entries.values()):
                self._observe_pod(entry)

    def _observe_pod(self, entry: Entry) -> None:
        pod, life = checks.stored(PODS, entry), self._lives.get(entry.uid)
        node = self._store.get("nodes", pod["spec"].get("nodeName") or "")
        if node is None:
            return
        if lifecycle.is_terminating(pod):
            if life is None:
                life = self._lives[entry.uid] = PodLife(pod, self._context)
            life.terminate(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        elif life is None and not lifecycle.has_ended(pod):
            host, address = _internal_ip(node.obj()), self._address(node.key)
            life = self._lives[entry.uid] = PodLife(pod, self._context, host, address)
            life.start()

    def _forget(self, uid: str) -> None:
        if life := self._lives.pop(uid, None):
            life.cancel()

    def _report(self, name: str, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> None:
        """Writes what the node's device plugins list into its status, whatever somebody else wrote there."""
        entry = self._store.get(NODES.resource, name)
        if entry is None:
            return
        node, listed = checks.stored(NODES, entry), {r: quantity.canonical(n) for r, n in allocatable.items()}
        old = node["status"].get("capacity") or {}
        wanted = old | {resource: quantity.canonical(count) for resource, count in capacity.items()}
        if wanted != old or self._registry.listed.get(name, {}) != listed:
            self._registry.listed[name] = listed
            self._registry.update(NODES, "", name, node | {"status": node["status"] | {"capacity": wanted}}, "status")

    def _active(self, node: str) -> list[Object]:
        """The pods of a node that have not ended."""
        pods = [life.read() for life in self._lives.values() if life.node == node]
        return [pod for pod in pods if pod is not None and not lifecycle.has_ended(pod)]

    def _address(self, node: str) -> str:
        """Differs for each pod, up to 60,000 pods a node."""
        if node not in self._addresses:
            self._addresses[node] = itertools.count()
        number = next(self._addresses[node]) % (250 * 250)
        subnet = list(self._addresses).index(node) % 100
        return f"10.{100 + subnet}.{number // 250}.{number % 250 + 1}"


def _internal_ip(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((address.get("address", "") for address in addresses if address.get("type") == "InternalIP"), "")
