"""Keeps the GPUNode of this node: made with the node as its owner, and written when its figures changed enough.

It is written at most every ten seconds, and about once a minute if nothing changes, so that its age says whether
anybody still looks at the GPUs. Chance spreads the writes of many nodes. Nothing waits for it: while the API server is
away it tries again, and where GPUNodes are not installed it looks once a minute whether they are now.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from gpushare.core.facts import objects, vitals
from gpushare.core.facts.vitals import FullStatus
from gpushare.kube import failures, requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.loop import Chance, Loop, Sleep
from gpushare.node.usage import gpunode
from gpushare.node.usage.model import Usage
from gpushare.node.usage.overuse import OverUse
from gpushare.obs import log

SHORTEST: Final = 9.5  # seconds between two writes: ten, and a pass of the sampler may come a little early
FIRST_WITHIN: Final = 5.0  # seconds after the start, by chance
SPREAD: Final = 0.1  # the longest time between two writes is longer by up to this part, by chance
REST: Final = 60.0  # seconds, after an answer that only people can change
NOT_INSTALLED: Final = "there are no GPUNodes in this cluster: kubectl apply -f deploy/crds/"
TWICE: Final = (
    "two processes sample the GPUs of this node and write its GPUNode: only one may, "
    "so give gpushare node --sample-seconds=0 beside gpushare collector"
)
TWICE_SECONDS: Final = 300.0  # within them another process wrote it twice; once may be a predecessor that is ending
NO_RIGHT: Final = "not allowed to write the GPUNode: apply the manifests in deploy/ again"

logger = log.get(__name__)


class _Owner(objects.Struct):
    uid: str = ""


class _Metadata(objects.Struct):
    resource_version: str = ""
    owner_references: list[_Owner] | None = None


class _Owned(objects.Struct):
    """A GPUNode as it is in the cluster."""

    metadata: _Metadata | None = None
    status: FullStatus | None = None

    @property
    def owners(self) -> set[str]:
        return {one.uid for one in (self.metadata.owner_references if self.metadata else None) or ()}


class GpuNodeWriter:
    """`take` is a listener of the sampler. `over_uses` says who uses too much now. `warn` is called with a sentence if
    another process writes it, too."""

    def __init__(
        self,
        api: Api,
        this_node: ThisNode,
        sample_seconds: float,
        over_uses: Callable[[], Sequence[OverUse]] = tuple,
        warn: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        chance: Chance = random.random,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.writes = 0
        self._api, self._this_node, self._sample_seconds, self._over_uses = api, this_node, sample_seconds, over_uses
        self._clock, self._now, self._chance = clock, now, chance
        self._loop = Loop(self._update, sleep=sleep, chance=chance)
        self._wanted: FullStatus | None = None
        self._written: FullStatus | None = None
        self._found: FullStatus | None = None  # what an earlier process has written
        self._version = ""  # resource version of the GPUNode, as it was last seen
        self._owner = ""  # uid of the node that owns the GPUNode; empty: not known, or there is none
        # It is written after a pass. If the next one is far, the first one cannot wait.
        self._not_before = clock() + (FIRST_WITHIN * chance() if sample_seconds <= REST else 0.0)
        self._not_after = self._not_before
        self._failure = ""  # that was logged last
        self._warn = warn
        self._other_wrote = -TWICE_SECONDS  # when it was seen that another process had written it
        self._twice = False  # and that was logged

    def take(self, usage: Usage) -> None:
        """What the GPUs do now."""
        self._wanted = gpunode.status(usage, self._over_uses(), self._sample_seconds)
        if self._is_due():
            self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    def _is_due(self) -> bool:
        node, now = self._this_node.node, self._clock()
        if node is None or self._wanted is None or now < self._not_before:
            return False
        return (
            now >= self._not_after
            or self._owner != node.metadata.uid
            or gpunode.changed_enough(self._written, self._wanted)
        )

    async def _update(self) -> bool:
        """Whether it is done. If not, it is tried again soon."""
        node, wanted = self._this_node.node, self._wanted
        if node is None or wanted is None or not self._is_due():
            return True
        began = self._clock()
        try:
            self._written = await self._write(wanted, node)
        except KubeError as error:
            return self._failed(error)
        self.writes += 1
        self._failure = ""
        self._not_before = began + SHORTEST
        self._not_after = began + vitals.HEARTBEAT_SECONDS * (1 + SPREAD * self._chance())
        return True

    def _failed(self, error: KubeError) -> bool:
        lasting = failures.needs_help(error, waits_for_connection=True) and not _conflict(error)
        why = _explained(error)
        if why != self._failure:
            logger.warn("cannot write the GPUNode, trying again", why=why)
        self._failure = why
        if lasting:
            self._not_before = self._clock() + REST * (1 + SPREAD * self._chance())
        return lasting

    async def _write(self, wanted: FullStatus, node: objects.Node) -> FullStatus:
        """The whole status, for the resource version that is known: that costs the API server less than a patch."""
        if self._owner != node.metadata.uid:
            await self._make_sure(node)
        dated = gpunode.dated(wanted, self._written or self._found, self._now())
        try:
            await self._replace(node.metadata.name, dated)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            await self._make_sure(node)  # somebody deleted it, or changed it
            self._look_for_another()
            await self._replace(node.metadata.name, dated)
        return dated

    def _look_for_another(self) -> None:
        """Whether what was found has figures that this process has not written."""
        ours, found, now = self._written, self._found, self._clock()
        if ours is None or found is None or found.sampled_at == ours.sampled_at:
            return
        lately, self._other_wrote = now - self._other_wrote < TWICE_SECONDS, now
        if lately:
            self._warn(TWICE)
            if not self._twice:
                logger.warn(TWICE)
        self._twice = lately

    async def _replace(self, name: str, status: FullStatus) -> None:
        body = {
            **_KIND,
            "metadata": {"name": name, "resourceVersion": self._version},
            "status": gpunode.written(status),
        }
        self._remember(await self._api.fetch(requests.replace_status(resources.GPU_NODES, "", name, body), _Owned))

    async def _make_sure(self, node: objects.Node) -> None:
        """It is there, and goes when this node goes."""
        self._owner, name = "", node.metadata.name
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
        metadata = {"name": name, "ownerReferences": [owner]}
        found = await self._api.find(requests.read(resources.GPU_NODES, "", name), _Owned)
        self._found = found.status if found is not None else None
        if found is None:
            created = requests.create(resources.GPU_NODES, "", {**_KIND, "metadata": metadata})
            found = await self._api.fetch(created, _Owned)
        elif found.owners != {node.metadata.uid}:
            owned = requests.patch(resources.GPU_NODES, "", name, {"metadata": metadata})
            found = await self._api.fetch(owned, _Owned)
        self._remember(found)
        self._owner = node.metadata.uid

    def _remember(self, shown: _Owned) -> None:
        self._version = shown.metadata.resource_version if shown.metadata else ""


_KIND: Final = {"apiVersion": f"{vitals.GROUP}/{vitals.VERSION}", "kind": vitals.KIND}


def _conflict(error: KubeError) -> bool:
    """Somebody else made it at the same moment."""
    return isinstance(error, ApiError) and error.status == 409


def _explained(error: KubeError) -> str:
    if isinstance(error, ApiError) and error.status == 404:
        return NOT_INSTALLED
    if isinstance(error, ApiError) and error.status == 403:
        return f"{NO_RIGHT} ({error.message})"
    return str(error)
