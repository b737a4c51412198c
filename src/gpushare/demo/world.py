"""The demo's cluster: create objects, wait for something, take a snapshot.

Objects are created over HTTP, as with kubectl. What became of them is read from the API server in this process.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import msgspec

from gpushare.core.facts import intree
from gpushare.ctl.inspect import command, sold_table
from gpushare.demo import checks
from gpushare.demo.objects import Object
from gpushare.demo.terminal import Terminal
from gpushare.devcluster.cluster import DevCluster
from gpushare.node.part import Part
from gpushare.view import snapshot, sold
from gpushare.view.snapshot import Snapshot

DEFAULT = "default"
PATIENCE = 30.0  # seconds; everything here takes less than a few
LOOK = 0.005  # seconds between two looks while waiting
DRAW = 0.1  # seconds between two drawings of the table
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/default/pods",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
}


class TooLong(Exception):
    """Something did not happen in time. The text says what."""


class World:
    """`components`: the real `gpushare node` of each node, by name. `fullest`: over all snapshots taken."""

    def __init__(
        self, cluster: DevCluster, components: Mapping[str, Part], session: aiohttp.ClientSession, terminal: Terminal
    ) -> None:
        self.cluster, self.components, self.fullest = cluster, components, checks.Fullest()
        self._session, self._terminal = session, terminal
        self._nodes, self._pods = msgspec.json.Decoder(snapshot.Node), msgspec.json.Decoder(intree.Pod)

    async def create(self, obj: Object) -> None:
        path = PATHS[obj["kind"]].replace("/default/", f"/{obj['metadata'].get('namespace', DEFAULT)}/")
        async with self._session.post(self.cluster.server.url + path, json=obj) as response:
            if response.status != 201:
                raise TooLong(f"{obj['kind']} {obj['metadata']['name']} was not created: {await response.text()}")

    async def delete_pod(self, namespace: str, name: str) -> None:
        async with self._session.delete(f"{self.cluster.server.url}/api/v1/namespaces/{namespace}/pods/{name}"):
            pass  # gone already is as good

    def look(self) -> Snapshot:
        """The cluster now. Also notes how full its GPUs are."""
        store = self.cluster.server.store
        nodes = [self._nodes.decode(entry.data) for entry in store.shelf("nodes").entries.values()]
        pods = [self._pods.decode(entry.data) for entry in store.shelf("pods").entries.values()]
        current = snapshot.build(nodes, pods, time.time())
        self.fullest = checks.fullest(current, self.fullest)
        return current

    def table(self) -> list[str]:
        """As `gpushare inspect` draws it: GPU memory, and what is sold by count."""
        current = self.look()
        drawn = command.page(current, command.Options(), self._terminal.screen).table.lines()
        return [*drawn, "", *sold_table.lines(sold.uses(current), current.now, details=False, wide=False)]

    async def keep_drawing(self) -> None:
        while True:
            self._terminal.show(self.table())
            await asyncio.sleep(DRAW)

    async def until(self, what: str, condition: Callable[[], bool]) -> float:
        """Waits for it. Returns the seconds it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > PATIENCE:
                raise TooLong(f"{what}: not after {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)
        return time.monotonic() - began

    async def until_bound(self, prefix: str, count: int) -> float:
        return await self.until(f"{count} pods {prefix} bound", lambda: len(self.bound(prefix)) >= count)

    async def until_running(self, prefix: str, count: int) -> None:
        await self.until(
            f"{count} pods {prefix} running",
            lambda: sum(pod.status.phase == "Running" for pod in self.pods(prefix)) >= count,
        )

    def pods(self, prefix: str) -> list[intree.Pod]:
        """Those whose names begin with the prefix, in all namespaces."""
        entries = self.cluster.server.store.shelf("pods").entries
        matches = [entry for key, entry in entries.items() if key.partition("/")[2].startswith(prefix)]
        return [self._pods.decode(entry.data) for entry in matches]

    def bound(self, prefix: str) -> list[intree.Pod]:
        return [pod for pod in self.pods(prefix) if pod.spec.node_name]

    def offered(self, node: str) -> bool:
        """Whether the node's component is ready and its GPUs can be used."""
        current = self.look()
        facts = current.ledger.facts(node)
        offers = facts is not None and facts.blocked is None
        sells = any(use.total for use in sold.uses(current) if use.node == node)
        return (offers or sells) and not self.components[node].not_ready()

    def places(self, pods: Sequence[intree.Pod]) -> dict[str, list[tuple[int, int]]]:
        """Where pods are: by node, pairs of a GPU and the units held on it."""
        ledger, places = self.look().ledger, dict[str, list[tuple[int, int]]]()
        for pod in pods:
            holding = ledger.holding(pod.metadata.uid)
            assert holding is not None
            facts = ledger.facts(holding.node)
            assert facts is not None
            places.setdefault(holding.node, []).extend(
                (facts.gpus[gpu].index, units) for gpu, units, _ in holding.charges or ()
            )
        return places
