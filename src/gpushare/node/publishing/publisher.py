"""Keeps the node object true: the annotation with the GPUs and, on nodes that pin directly, the capacity.

Woken by whatever may have made it wrong: a GPU fell sick or came back, a pod ended on a sick one, somebody or something
wiped the capacity (a new node object, a kubelet that lost its checkpoint). What must be there is worked out anew each
time (`publish`), compared, and only what differs is written. A write that fails is tried again, for ever.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import NodeFacts, Unit
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.loop import Loop
from gpushare.node.gpus import Gpus
from gpushare.node.pods import NodePods
from gpushare.node.publishing import desired
from gpushare.node.publishing.desired import PublishConfig, State, Wanted
from gpushare.node.this_node import ThisNode
from gpushare.obs import log

PAUSE = 1.0  # seconds between two writes: whoever keeps wiping the capacity must not make us a burden
AGAIN = 0.2  # seconds; who is about to end cannot wait longer

logger = log.get(__name__)


class Publisher:
    """Listeners are told the node's facts whenever they changed. `wants` is None until there is a node object."""

    def __init__(
        self,
        api: Api,
        config: PublishConfig,
        gpus: Gpus,
        pods: NodePods,
        own: ThisNode,
    ) -> None:
        self.wants: Wanted | None = None
        self.writes = 0
        self.failure: KubeError | None = None  # of the last write
        self.listeners: list[Callable[[NodeFacts], None]] = []
        self._api, self._config, self._gpus, self._pods, self._own = api, config, gpus, pods, own
        self._state: State = "ready"
        self._before: NodeFacts | None = None  # what was published last, by us or our predecessor
        self._loop = Loop(self._update)
        self._loop.wake()
        self._one_at_a_time = asyncio.Lock()  # a former state must not be written over a later one
        gpus.listeners.append(self._loop.wake)
        own.listeners.append(self._loop.wake)
        pods.listeners.append(lambda uid: self._loop.wake())

    @property
    def done(self) -> bool:
        """Whether the node says what it must."""
        node = self._own.node
        return node is not None and self.wants is not None and not _anything(desired.changes(self.wants, node))

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def drain(self, limit: float) -> None:
        """Says that nothing new shall come, if that can be said in time."""
        self._state = "draining"
        try:
            async with asyncio.timeout(limit):
                while not await self._publish():  # noqa: ASYNC110 - each turn is a try
                    await asyncio.sleep(AGAIN)
        except TimeoutError:
            logger.warn("could not say that this node is draining", why=str(self.failure or f"not within {limit:g} s"))

    async def _update(self) -> bool:
        before = self.writes
        done = await self._publish()
        if done and self.writes > before:
            await asyncio.sleep(PAUSE)
        return done

    async def _publish(self) -> bool:
        """Whether the node is up to date."""
        async with self._one_at_a_time:
            node = self._own.node
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
        pods = [seen.facts for seen in self._pods.pods.values()]
        unit = desired.unit(self._config, self._gpus.devices, before.unit if before else None, pods)
        self._say_unit(unit)
        config = msgspec.structs.replace(self._config, unit=unit)
        known = desired.recounted(before, unit) if before else ()
        wants = desired.wanted(config, self._gpus.devices, self._gpus.sick, known, pods, self._state)
        news = self.wants is None or self.wants.facts != wants.facts
        self.wants, self._before = wants, wants.facts
        for listener in self.listeners if news else ():
            listener(wants.facts)
        return wants

    def _say_unit(self, unit: Unit) -> None:
        counted = self.wants.facts.unit if self.wants is not None else self._config.unit
        if unit != counted and unit != self._config.unit:
            logger.warn(
                "pods run here that were given memory in another unit: it is kept", unit=unit, asked=self._config.unit
            )
        elif unit != counted:
            logger.info("no pod is left that was given memory in another unit: it is changed", unit=unit)

    async def _write(self, missing: desired.Changes) -> None:
        # The annotation first: a capacity without it would be taken for a node of the original plugin.
        if missing.annotation is not None:
            said = {names.NODE_GPUS: missing.annotation}
            self._own.upsert(await self._api.patch_node_annotations(self._config.node, said))
            self.writes += 1
        if missing.capacity is not None:
            self._own.upsert(await self._api.patch_node_capacity(self._config.node, missing.capacity))
            self.writes += 1
        logger.info(
            "published", state=self._state, annotation=missing.annotation is not None, capacity=missing.capacity or {}
        )


def _anything(missing: desired.Changes) -> bool:
    return missing.annotation is not None or missing.capacity is not None
