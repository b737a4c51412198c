"""This node's object: watched, and its annotation gpushare.io/validation kept as the checks say.

The annotation is written by server-side apply: it belongs to this program alone, and an apply without it removes it.
"""

from typing import Any

from gpushare.core.annotations import validation
from gpushare.core.annotations.validation import Checks
from gpushare.core.facts import names, objects
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.labels import this_node
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.loop import Loop
from gpushare.kube.reflector import Reflector
from gpushare.obs import log
from gpushare.validate.rules.plugin import NOT_ASKED

SILENCE, PATIENCE = 75.0, 300.0  # seconds, as of the node part: there may be thousands of nodes

logger = log.get(__name__)


class Sight(ThisNode):
    """With its watch."""

    def __init__(self, api: Api, name: str) -> None:
        super().__init__(name)
        self.watch = Reflector(
            api, resources.NODES, objects.Node, self, key=lambda item: item.metadata.name, optional=True,
            query=this_node.query(name), silence=SILENCE, patience=PATIENCE,
        )  # fmt: skip

    def found(self) -> tuple[objects.Node | None, str]:
        """The node and, if it is not known, why."""
        failure = self.watch.failure
        return self.node, "" if self.node or self.watch.synced else str(failure) if failure is not None else NOT_ASKED


def applied(name: str, annotations: dict[str, str]) -> requests.Request:
    """Exactly these annotations are the validator's from then on."""
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}
    return requests.apply(resources.NODES, "", name, body, manager=names.VALIDATOR_MANAGER, force=True)


class Annotation:
    """Writes what `say` was told last, when it differs from what the node has."""

    def __init__(self, api: Api, sight: Sight) -> None:
        self.writes = 0
        self._api, self._sight = api, sight
        self._wanted = ""
        self._loop = Loop(self._update)
        sight.listeners.append(self._loop.wake)

    def say(self, checks: Checks) -> None:
        self._wanted = validation.write(checks)
        self._loop.wake()

    async def run(self) -> None:
        await self._loop.run()

    async def remove(self) -> None:
        """At the end. Raises KubeError."""
        if self._sight.node is not None and self._has() is not None:
            await self._api.send(applied(self._sight.name, {}))

    async def _update(self) -> bool:
        if not self._wanted or self._sight.node is None or self._has() == self._wanted:
            return True
        try:
            node = await self._api.fetch(
                applied(self._sight.name, {names.VALIDATION: self._wanted}), objects.Node
            )  # fmt: skip
        except KubeError as error:
            logger.warn("the annotation of the checks is not written", node=self._sight.name, why=str(error))
            return False
        self.writes += 1
        self._sight.upsert(node)
        return True

    def _has(self) -> str | None:
        node = self._sight.node
        return ((node.metadata.annotations if node else None) or {}).get(names.VALIDATION)
