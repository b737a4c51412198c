"""The demo's cluster as its story sees it: create this, wait for that, look.

Made by `app` around the embedded cluster. Objects are created over HTTP, as anybody would; what became of them is read
from the server in this process.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import msgspec

from gpushare.core.facts import intree
from gpushare.ctl.inspect import command
from gpushare.demo import checks
from gpushare.demo.objects import Object
from gpushare.demo.terminal import Stage
from gpushare.devcluster.cluster import DevCluster
from gpushare.node.app import Node
from gpushare.view import snapshot
from gpushare.view.snapshot import Snapshot

DEFAULT = "default"
PATIENCE = 30.0  # seconds for anything; all of it takes moments
LOOK = 0.005  # seconds between two looks while something is awaited
DRAW = 0.1  # seconds between two pictures
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/default/pods",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
}


class TooLong(Exception):
    """What was awaited did not happen; the text says what."""


class World:
    """`components`: what runs on its nodes, by name."""

    def __init__(
        self, cluster: DevCluster, components: Mapping[str, Node], session: aiohttp.ClientSession, stage: Stage
    ) -> None:
        self.cluster, self.components, self.worst = cluster, components, checks.Fullest()
        self._session, self._stage = session, stage
        self._nodes, self._pods = msgspec.json.Decoder(snapshot.Node), msgspec.json.Decoder(intree.Pod)

    async def create(self, obj: Object) -> None:
        path = PATHS[obj["kind"]].replace("/default/", f"/{obj['metadata'].get('namespace', DEFAULT)}/")
        async with self._session.post(self.cluster.server.url + path, json=obj) as response:
            if response.status != 201:
                raise TooLong(f"{obj['kind']} {obj['metadata']['name']} was not created: {await response.text()}")

    def look(self) -> Snapshot:
        """The cluster now. Every look also notes how full the GPUs are."""
        store = self.cluster.server.store
        nodes = [self._nodes.decode(entry.data) for entry in store.shelf("nodes").entries.values()]
        pods = [self._pods.decode(entry.data) for entry in store.shelf("pods").entries.values()]
        seen = snapshot.build(nodes, pods, time.time())
        self.worst = checks.fullest(seen, self.worst)
        return seen

    def table(self) -> list[str]:
        """As `gpushare inspect` draws it."""
        return command.page(self.look(), command.Options(), self._stage.screen).table.lines()

    async def keep_drawing(self) -> None:
        while True:
            self._stage.show(self.table())
            await asyncio.sleep(DRAW)

    async def until(self, what: str, condition: Callable[[], bool]) -> float:
        """Waits, and returns how many seconds it took."""
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
        """Those whose names begin so, in all namespaces."""
        entries = self.cluster.server.store.shelf("pods").entries
        found = [entry for key, entry in entries.items() if key.partition("/")[2].startswith(prefix)]
        return [self._pods.decode(entry.data) for entry in found]

    def bound(self, prefix: str) -> list[intree.Pod]:
        return [pod for pod in self.pods(prefix) if pod.spec.node_name]

    def offered(self, node: str) -> bool:
        """Whether all is ready on the node, and its GPUs can be had."""
        facts = self.look().ledger.facts(node)
        offers = facts is not None and facts.blocked is None
        return offers and not self.components[node].not_ready()

    def places(self, pods: Sequence[intree.Pod]) -> dict[str, list[tuple[int, int]]]:
        """Where pods are: by node, the GPUs and what they hold there."""
        seen, found = self.look(), dict[str, list[tuple[int, int]]]()
        for pod in pods:
            holding = seen.ledger.holding(pod.metadata.uid)
            assert holding is not None
            facts = seen.ledger.facts(holding.node)
            assert facts is not None
            found.setdefault(holding.node, []).extend(
                (facts.gpus[gpu].index, units) for gpu, units in holding.charges or ()
            )
        return found
