"""Keeps the node object up to date: the annotation with the GPUs and, on nodes that pin directly, the capacity.

It is woken by everything that may have made the node object wrong: a GPU became unhealthy or healthy, a pod ended on an
unhealthy GPU, or the capacity was lost (a new node object, a kubelet without its checkpoint). Each time `desired` works
out what the node object has to say, and only what differs is written. A write that fails is tried again, for ever.

What happens next: the API server sends the changed node to the extender, whose watch is in `extender/watches.py`.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from gpushare.core.annotations.node_gpus import State
from gpushare.core.facts import names, objects
from gpushare.core.facts.model import NodeFacts, Sold, Unit
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.loop import Loop
from gpushare.node.gpus import Gpus
from gpushare.node.pods import NodePods
from gpushare.node.publishing import desired
from gpushare.node.publishing.desired import PublishConfig, Wanted
from gpushare.node.publishing.links import Links
from gpushare.obs import log

PAUSE = 1.0  # seconds after a write: if another program keeps deleting the capacity, we write once a second
AGAIN = 0.2  # seconds between two tries while this process is ending

logger = log.get(__name__)


async def annotate(api: Api, node: str, annotations: Mapping[str, str]) -> objects.Node:
    """Returns the node as it is then."""
    body = {"metadata": {"annotations": dict(annotations)}}
    return await api.fetch(requests.patch(resources.NODES, "", node, body), objects.Node)


async def set_capacity(api: Api, node: str, capacity: Mapping[str, int]) -> objects.Node:
    """Sets resources that no device plugin reports; kubelet makes them allocatable and keeps them."""
    amounts = {resource: str(amount) for resource, amount in capacity.items()}
    return await api.fetch(requests.patch_status(resources.NODES, "", node, {"capacity": amounts}), objects.Node)


class Publisher:
    """Listeners get the node's facts after each change. `wants` is None until there is a node object. `links`: None
    where nobody places pods by them."""

    def __init__(
        self,
        api: Api,
        config: PublishConfig,
        gpus: Gpus,
        pods: NodePods,
        this_node: ThisNode,
        links: Links | None = None,
    ) -> None:
        self.wants: Wanted | None = None
        self.writes = 0
        self.failure: KubeError | None = None  # of the last write
        self.listeners: list[Callable[[NodeFacts], None]] = []
        self._api, self._config, self._gpus, self._pods, self._this_node = api, config, gpus, pods, this_node
        self._links = links
        self._state: State = "ready"
        self._before: NodeFacts | None = None  # what was published last, also by an earlier process
        self._loop = Loop(self._update)
        self._loop.wake()
        self._one_at_a_time = asyncio.Lock()  # an older state must not overwrite a newer one
        gpus.listeners.append(self._loop.wake)
        this_node.listeners.append(self._loop.wake)
        pods.listeners.append(lambda uid: self._loop.wake())
        if links is not None:
            links.listeners.append(self._loop.wake)

    @property
    def done(self) -> bool:
        """Whether the node object is up to date."""
        node = self._this_node.node
        return node is not None and self.wants is not None and not _anything(desired.changes(self.wants, node))

    def sell(self, sold: Sold) -> None:
        """From now on it sells this without the extender."""
        self._config = msgspec.structs.replace(self._config, sold=(sold,))
        self._loop.wake()

    def tell_mps(self, down: str) -> None:
        """Why the MPS daemon serves nobody; empty: it serves clients."""
        self._config = msgspec.structs.replace(self._config, mps_down=down)
        self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def drain(self, limit: float) -> None:
        """Publishes that no new pods shall come, if that is possible within `limit` seconds."""
        self._state = "draining"
        try:
            async with asyncio.timeout(limit):
                while not await self._publish():  # noqa: ASYNC110 - each turn is a try
                    await asyncio.sleep(AGAIN)
        except TimeoutError:
            logger.warn("cannot publish that this node is draining", why=str(self.failure or f"not within {limit:g} s"))

    async def _update(self) -> bool:
        before = self.writes
        done = await self._publish()
        if done and self.writes > before:
            await asyncio.sleep(PAUSE)
        return done

    async def _publish(self) -> bool:
        """Whether the node is up to date."""
        async with self._one_at_a_time:
            node = self._this_node.node
            missing = desired.changes(self._work_out(node), node) if node is not None else None
            if missing is None or not _anything(missing):
                self.failure = None
                return True
            try:
                await self._write(missing)
            except KubeError as error:
                logger.warn("cannot write to the node, trying again", why=str(error))
                self.failure = error
                return False
            self.failure = None
            return True

    def _work_out(self, node: objects.Node) -> Wanted:
        before = self._before or desired.published(node)
        pods = [node_pod.facts for node_pod in self._pods.pods.values()]
        unit = desired.unit(self._config, self._gpus.devices, before.unit if before else None, pods)
        self._log_unit(unit)
        limit = desired.limit(self._config.pin, unit, node)
        links = self._links.known if self._links is not None else {}
        config = msgspec.structs.replace(self._config, unit=unit, limit=limit, links=links)
        config = desired.withdrawn(desired.served(config, self._gpus.devices), before, node)
        known = desired.recounted(before, unit) if before else ()
        wants = desired.wanted(config, self._gpus.devices, self._gpus.unhealthy, known, pods, self._state)
        changed = self.wants is None or self.wants.facts != wants.facts
        self.wants, self._before = wants, wants.facts
        for listener in self.listeners if changed else ():
            listener(wants.facts)
        return wants

    def _log_unit(self, unit: Unit) -> None:
        counted = self.wants.facts.unit if self.wants is not None else self._config.unit
        if unit != counted and unit != self._config.unit:
            logger.warn(
                "pods here were given memory in another unit: keeping it", unit=unit, configured=self._config.unit
            )
        elif unit != counted:
            logger.info("no pod with memory in another unit is left: changing the unit", unit=unit)

    async def _write(self, missing: desired.Changes) -> None:
        # The annotation first: with a capacity alone it would look like a node of Aliyun's plugin.
        if missing.annotation is not None:
            annotations = {names.NODE_GPUS: missing.annotation}
            self._this_node.upsert(await annotate(self._api, self._config.node, annotations))
            self.writes += 1
        if missing.capacity is not None:
            self._this_node.upsert(await set_capacity(self._api, self._config.node, missing.capacity))
            self.writes += 1
        logger.info(
            "published", state=self._state, annotation=missing.annotation is not None, capacity=missing.capacity or {}
        )


def _anything(missing: desired.Changes) -> bool:
    return missing.annotation is not None or missing.capacity is not None
