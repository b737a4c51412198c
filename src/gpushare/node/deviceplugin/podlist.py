"""Lists the pods of this node from the API server while kubelet waits for an answer.

kubelet often sees a pod before our watch does, and a pod that has ended may still seem to hold its GPU. So before a
container is placed elsewhere than planned, or refused, the pods of the node are listed once. kubelet admits nothing
else meanwhile, so this ends after two seconds, whatever the API server does.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts
from gpushare.kube import models, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.node import pods
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.obs import log

LIST_SECONDS: Final = 1.5
WAIT_SECONDS: Final = 2.0  # in total: if the list fails, the watch may still show the pod

logger = log.get(__name__)


class PodList:
    """`changed` is called after the pods were listed."""

    def __init__(self, api: Api, node: str, state: State, changed: Callable[[], None]) -> None:
        self._api, self._node, self._state, self._changed = api, node, state, changed
        self._touched: set[str] = set()  # pods that the watch showed since the list began: that is newer
        self._heard = asyncio.Event()

    def pod_changed(self, uid: str) -> None:
        """The watch has shown a change of a pod."""
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
                listed = await self._list()
        except (KubeError, TimeoutError) as error:
            logger.warn("cannot list the pods of this node", why=str(error) or "no answer in time")
            await self._wait_for_watch(end)
            return
        self._update(listed)

    async def _list(self) -> dict[str, PodFacts]:
        items: list[pods.Pod] = []
        async for page, _ in self._api.list_pages(resources.PODS, pods.Pod, query=pods.query(self._node)):
            items += page
        # A list has no order. Pods that kubelet has not admitted yet were last changed by their binding, and kubelet
        # gets them in that order.
        items.sort(key=lambda item: models.number(item.metadata.resource_version))
        return {item.metadata.uid: request.facts(item, None) for item in items}

    async def _wait_for_watch(self, end: float) -> None:
        try:
            async with asyncio.timeout_at(end):
                await self._heard.wait()
        except TimeoutError:
            pass

    def _update(self, listed: dict[str, PodFacts]) -> None:
        """Adds pods that have come, and ends pods that have gone. Other changes come with the watch."""
        self._state.knows_all = True
        known = self._state.plans.pods
        gone = [uid for uid in known if uid not in listed and uid not in self._touched]
        for uid, pod in listed.items():
            if uid not in self._touched and pod.request is not None and (pod.finished or uid not in known):
                self._state.see(pod)
        for uid in gone:  # last: their grants may belong to a pod that has come
            self._state.end(uid)
