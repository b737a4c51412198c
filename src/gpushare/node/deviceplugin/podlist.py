"""Looks at the API server in the middle of kubelet's question: which pods are on this node, right now?

kubelet often sees a pod before our own watch does, and a pod that has ended may still seem to hold its GPU. So before
anything is placed otherwise than planned, or refused, the pods of the node are listed once. kubelet waits meanwhile and
admits nothing else, so it ends after two seconds, whatever the API server does.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts
from gpushare.kube import resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.node import pods
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.obs import log

LIST_SECONDS: Final = 1.5
WAIT_SECONDS: Final = 2.0  # in all, if the list does not come: the watch may still bring what is missing

logger = log.get(__name__)


class PodList:
    """`changed` is called after the pods were listed."""

    def __init__(self, api: Api, node: str, state: State, changed: Callable[[], None]) -> None:
        self._api, self._node, self._state, self._changed = api, node, state, changed
        self._touched: set[str] = set()  # pods the watch told about since the look began: that is newer
        self._heard = asyncio.Event()

    def heard(self, uid: str) -> None:
        """The watch has told something about a pod."""
        self._touched.add(uid)
        self._heard.set()

    async def refresh(self) -> None:
        await self._refresh()
        self._changed()

    async def _refresh(self) -> None:
        end = asyncio.get_running_loop().time() + WAIT_SECONDS
        self._touched.clear()
        self._heard.clear()
        self._state.knows_all = False
        try:
            async with asyncio.timeout(LIST_SECONDS):
                found = await self._list()
        except (KubeError, TimeoutError) as error:
            logger.warn("cannot ask which pods are here", why=str(error) or "no answer in time")
            await self._listen_until(end)
            return
        self._learn(found)

    async def _list(self) -> dict[str, PodFacts]:
        found: list[pods.Pod] = []
        async for items, _ in self._api.list_pages(resources.PODS, pods.Pod, query=pods.query(self._node)):
            found += items
        # A list is in no order. Pods that kubelet has not taken were last changed when they were bound, and in that
        # order kubelet gets them.
        found.sort(key=lambda item: _number(item.metadata.resource_version))
        return {item.metadata.uid: request.facts(item, None) for item in found}

    async def _listen_until(self, end: float) -> None:
        try:
            async with asyncio.timeout_at(end):
                await self._heard.wait()
        except TimeoutError:
            pass

    def _learn(self, found: dict[str, PodFacts]) -> None:
        """Pods that have come, and pods that have gone. Of those known already, the watch says the rest."""
        self._state.knows_all = True
        known = self._state.plans.pods
        gone = [uid for uid in known if uid not in found and uid not in self._touched]
        for uid, pod in found.items():
            if uid not in self._touched and pod.request is not None and (pod.finished or uid not in known):
                self._state.see(pod)
        for uid in gone:  # last: what seemed to be theirs may be of a pod that has come
            self._state.end(uid)


def _number(version: str) -> int:
    """Resource versions are numbers that grow, wherever pods come from an API server."""
    return int(version) if version.isdecimal() else 0
