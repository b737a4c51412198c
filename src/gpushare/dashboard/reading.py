"""What a page needs besides what is watched: events about a pod, and how gpushare itself is. Read when it is asked for.

What gpushare's own objects say is kept for some seconds, so that many readers cost the API server no more than one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from gpushare.core.facts import names
from gpushare.dashboard.answers.ours import Event as OurEvent
from gpushare.dashboard.answers.ours import OurPod, PolicyObject, Seen
from gpushare.kube import resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.view.why.pod_details import Event, Pod

KEPT_SECONDS: Final = 10.0
OUR_PODS: Final = {"labelSelector": "app=gpushare"}  # as all manifests of deploy/ say
OUR_EVENTS: Final = {"fieldSelector": f"type=Warning,reportingComponent={names.COMPONENT}"}

T = TypeVar("T")


class Reading:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._seen: tuple[Seen, float] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def events(self, pod: Pod) -> list[Event]:
        """About this pod; none if they cannot be read."""
        name = pod.metadata.name
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
        try:
            pages = self._api.list_pages(resources.EVENTS, Event, namespace=pod.metadata.namespace, query=query)
            return [event async for items, _ in pages for event in items]
        except KubeError:
            return []

    async def ours(self) -> Seen:
        async with self._one_at_a_time:
            if self._seen is None or self._clock() - self._seen[1] >= KEPT_SECONDS:
                pods = self._api.list_pages(resources.PODS, OurPod, query=OUR_PODS)
                events = self._api.list_pages(resources.EVENTS, OurEvent, query=OUR_EVENTS)
                policies = self._api.list_pages(resources.CLUSTER_POLICIES, PolicyObject)
                self._seen = Seen(await _all(pods), await _all(events), await _all(policies)), self._clock()
            return self._seen[0]


async def _all(pages: AsyncIterator[tuple[list[T], str]]) -> list[T] | None:
    """None: they cannot be read. There are none of a kind that the cluster does not have."""
    try:
        return [item async for items, _ in pages for item in items]
    except ApiError as error:
        return [] if error.status == 404 else None
    except KubeError:
        return None
