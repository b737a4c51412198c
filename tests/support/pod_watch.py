"""A watch of one namespace's pods: the pods as they are now, and when each was bound, refused or gone.

One watch per test. Tests wait for what it shows instead of asking again and again, and measure with its times.
"""

import asyncio
import time
from collections.abc import Callable

import aiohttp

from tests.support.api_client import Api, Object

GONE = 410
PATIENCE = 30.0  # seconds; for whatever is sure to come
WATCH_SECONDS = 200  # the client gives up any request after 300


class PodWatch:
    def __init__(self, api: Api) -> None:
        self.pods: dict[str, Object] = {}
        self.bound_at: dict[str, float] = {}  # by name, in seconds of time.monotonic()
        self.refused_at: dict[str, float] = {}  # since when the condition says so
        self.gone_at: dict[str, float] = {}
        self.events = 0
        self.changed = asyncio.Condition()
        self.listeners: list[Callable[[str, Object], None]] = []  # told of every event, in order
        self._api = api
        self._version = ""

    async def run(self) -> None:
        """For ever. What the API server does not remember after it was away is found in a list."""
        while True:
            self._version = await self._list()
            while self._version:
                try:
                    await self._watch()
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.1)

    async def _list(self) -> str:
        listed = await self._api.get(self._api.pods)
        there = {pod["metadata"]["name"]: pod for pod in listed.body["items"]}
        async with self.changed:
            for gone in [pod for name, pod in self.pods.items() if name not in there]:
                self._show("DELETED", gone)
            for pod in there.values():
                self._show("ADDED", pod)
            self.changed.notify_all()
        return listed.version

    async def _watch(self) -> None:
        """From the version on up to which everything was seen; there is none if the API server remembers less."""
        async with self._api.watch(
            self._api.pods, resourceVersion=self._version, timeoutSeconds=WATCH_SECONDS, allowWatchBookmarks="true"
        ) as watch:
            while (event := await watch.event()) is not None:
                type_, pod = event
                if type_ == "ERROR":
                    assert pod["code"] == GONE, pod
                    self._version = ""
                    return
                self._version = pod["metadata"]["resourceVersion"]
                if type_ != "BOOKMARK":
                    async with self.changed:
                        self._show(type_, pod)
                        self.changed.notify_all()

    def _show(self, type_: str, pod: Object) -> None:
        name, now = pod["metadata"]["name"], time.monotonic()
        self.events += 1
        for listener in self.listeners:
            listener(type_, pod)
        if type_ == "DELETED":
            self.pods.pop(name, None)
            self.gone_at[name] = now
            return
        self.pods[name] = pod
        if node_of(pod):
            self.bound_at.setdefault(name, now)
        if refusal(pod):
            self.refused_at.setdefault(name, now)

    async def until(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        """Waits for something that the pods show; `what` is said if it does not come."""
        try:
            async with asyncio.timeout(seconds), self.changed:
                await self.changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:.0f} s: {what}; {self._summary()}") from None

    async def until_bound(self, *names: str, seconds: float = PATIENCE) -> None:
        await self.until("bound", lambda: all(node_of(self.pods.get(name, {})) for name in names), seconds)

    async def until_refused(self, *names: str, seconds: float = PATIENCE) -> None:
        await self.until("refused", lambda: all(refusal(self.pods.get(name, {})) for name in names), seconds)

    def _summary(self) -> str:
        waiting = {name: refusal(pod) for name, pod in self.pods.items() if not node_of(pod)}
        shown = "; ".join(f"{name}: {why or 'no condition'}" for name, why in list(waiting.items())[:5])
        return f"{len(self.pods)} pods, {len(waiting)} of them not bound. {shown}"


def node_of(pod: Object) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def refusal(pod: Object) -> str:
    """What the scheduler's condition says of a pod that it could not place."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", "")) or "refused"
    return ""
