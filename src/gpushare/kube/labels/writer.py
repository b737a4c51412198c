"""Keeps the labels that one program wants on its own node, whoever removes or changes them.

It works on change: of what is wanted, of the node, and of NFD. What is wanted are facts that were found on the machine,
so a value that somebody else wrote is put right. Nothing waits for it: while the API server is away it tries again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from gpushare.core.facts import objects
from gpushare.kube import failures, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.labels import applied, features, owner
from gpushare.kube.labels.features import NodeFeature, Sight
from gpushare.kube.loop import Loop, Sleep
from gpushare.kube.reflector import Reflector
from gpushare.obs import log

Way = Literal["auto", "labels", "nodefeature"]  # auto: through NFD where it runs
WAYS: Final[tuple[Way, ...]] = ("auto", "labels", "nodefeature")
SILENCE, PATIENCE = 75.0, 300.0  # seconds, as of the node part: there may be thousands of nodes
PAUSE: Final = 1.0  # seconds after a write: if another program keeps removing labels, we write once a second
NO_NFD: Final = (403, 404)  # it is not installed, or not for us

logger = log.get(__name__)


class Identity(NamedTuple):
    """`pod`, `namespace`: where this program runs; a NodeFeature of ours is there, too."""

    node: str
    manager: str
    namespace: str = "kube-system"
    pod: str = ""


class Writer:
    """`want` and `see` may be called at any time. `done`: node and NodeFeature are as they should be."""

    def __init__(self, api: Api, identity: Identity, way: Way = "auto", *, sleep: Sleep = asyncio.sleep) -> None:
        self.done, self.writes, self.failure = False, 0, ""
        self._api, self._identity, self._way = api, identity, way
        self._sleep, self._loop = sleep, Loop(self._update)
        self._wanted: dict[str, str] | None = None  # None: not known yet
        self._node: objects.Node | None = None
        self._applied: tuple[str, dict[str, str]] | None = None  # uid of the node, and what was applied to it last
        self._owners: list[dict[str, Any]] | None = None
        self._sight = Sight(identity.node, identity.namespace, f"{identity.manager}-{identity.node}")
        self._sight.changed = self._loop.wake
        self._nfd: Reflector[NodeFeature] = Reflector(
            api, resources.NODE_FEATURES, NodeFeature, self._sight, key=features.key,
            query=features.query(identity.node), optional=True, silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip

    @property
    def watch(self) -> Reflector[NodeFeature] | None:
        """To be run beside this; None: nobody needs to know about NFD."""
        return self._nfd if self._way != "labels" else None

    def want(self, labels: Mapping[str, str]) -> None:
        """All that this program has to say."""
        if labels != self._wanted:
            self._wanted, self.done = dict(labels), False
            self._loop.wake()

    def see(self, node: objects.Node | None) -> None:
        """The node as it is now."""
        self._node = node
        if node is not None and not self._is_applied(node, self._direct()):
            self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def _update(self) -> bool:
        """Whether nothing is left to do. If not, it is tried again soon."""
        if self._wanted is None or self._node is None:
            return True
        if not self._knows_nfd():
            return False
        before = self.writes
        try:
            await self._write(self._node)
        except KubeError as error:
            return self._failed(error)
        self.done, self.failure = True, ""
        if self.writes > before:
            await self._sleep(PAUSE)
        return True

    async def _write(self, node: objects.Node) -> None:
        """First the node: NFD's master does not label again what it believes to be there."""
        direct = self._direct()
        if not self._is_applied(node, direct):
            self._applied = None
            await self._api.send(applied.apply(node.metadata, self._identity.manager, direct, force=True))
            self._applied = node.metadata.uid, direct
            self._wrote("node", direct)
        featured = self._wanted if self._through_nfd() else None
        if featured and self._sight.ours != featured:
            if self._owners is None:
                self._owners = await owner.of_pod(self._api, self._identity.namespace, self._identity.pod)
            await self._api.send(features.apply(self._sight, self._identity.manager, featured, self._owners))
            self._wrote("NodeFeature", featured)
        elif not featured and self._sight.ours is not None:
            await self._delete_feature()
            self._wrote("NodeFeature", {})

    async def _delete_feature(self) -> None:
        try:
            await self._api.send(features.delete(self._sight))
        except ApiError as error:
            if error.status != 404:
                raise

    def _direct(self) -> dict[str, str]:
        """What has to be on the node itself."""
        return {} if self._through_nfd() else self._wanted or {}

    def _through_nfd(self) -> bool:
        return self._way == "nodefeature" or (self._way == "auto" and self._sight.nfd_runs)

    def _knows_nfd(self) -> bool:
        """An API server without NFD's kind says so."""
        failure = self._nfd.failure
        return self._way == "labels" or self._nfd.synced or (isinstance(failure, ApiError) and failure.status in NO_NFD)

    def _is_applied(self, node: objects.Node, labels: Mapping[str, str]) -> bool:
        """What an earlier process applied is not known, so each process applies at least once."""
        there = node.metadata.labels or {}
        return self._applied == (node.metadata.uid, labels) and all(there.get(k) == v for k, v in labels.items())

    def _wrote(self, what: str, labels: Mapping[str, str]) -> None:
        self.writes += 1
        logger.info("labels written", to=what, manager=self._identity.manager, labels=dict(labels))

    def _failed(self, error: KubeError) -> bool:
        """A failure that only people can end is tried again, too: rights may come at any time."""
        self.done = False
        why = failures.explain(error, self._api.access).why if _is_forbidden(error) else str(error)
        if why != self.failure:
            logger.warn("cannot write labels, trying again", why=why)
        self.failure = why
        return False


def _is_forbidden(error: KubeError) -> bool:
    return isinstance(error, ApiError) and error.status == 403
