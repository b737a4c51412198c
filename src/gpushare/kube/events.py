"""Events: what `kubectl describe pod` shows below a pod.

`record` is called in the middle of decisions, so it never waits and never fails. One task sends the events, at a
limited rate and from each namespace in turn: thousands of events about one tenant's pods do not delay another tenant's.
Events that cannot be sent are counted and dropped, because nothing depends on them.

Where somebody may be `busy` with better work, Normal events wait until he is not: at most 30 seconds, and while they
are fewer than 2,500. Their times are those at which they happened. Warnings never wait.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gpushare.core.facts import names
from gpushare.core.turns import Turns
from gpushare.kube import client, models, requests, resources
from gpushare.kube.errors import ApiError, KubeError

QUEUE, NORMALS = 1000, 5000  # Warnings, and Normal events, that wait to be sent
RATE, BURST = 20.0, 100.0  # events per second, and at once
PATIENCE, MANY = 30.0, 2500  # seconds, and Normal events, that may wait although somebody is busy
LOOK = 0.1  # seconds between two looks at whether he still is
AGAIN = 300.0  # seconds before the same sentence is sent again
REMEMBERED = 10_000  # sentences
RETRY = 1.0  # seconds
MESSAGE = 200  # characters
NAME = 253  # characters

Key = tuple[str, str, str]


class Said(NamedTuple):
    """An event that is not made yet: to make it can wait as well."""

    at: float  # seconds since 1970
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


class Recorder:
    def __init__(
        self,
        api: client.Api,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
        busy: Callable[[], bool] = lambda: False,
        component: str = names.COMPONENT,
    ) -> None:
        """`busy`: whether Normal events have to wait. `component`: who says it."""
        self.sent = 0
        self.dropped = 0  # the queue was full
        self.failed = 0
        self._api = api
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._busy = busy
        self._component = component
        self._warnings: Turns[Key, Said] = Turns()
        self._normals: Turns[Key, Said] = Turns()
        self._waiting_since = 0.0  # the first of those Normal events
        self._normal_was_last = self._ending = False
        self._filled, self._all_sent = asyncio.Event(), asyncio.Event()
        self._all_sent.set()
        self._said: dict[Key, float] = {}  # oldest first
        self._due = clock() - BURST / RATE

    def record(
        self,
        *,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        type: str,
        reason: str,
        message: str,
        longest: int = MESSAGE,
        again: bool = False,
        api_version: str = "v1",
    ) -> None:
        """An event about one object; nodes have no namespace. The same sentence again within 5 minutes is left out,
        unless `again`: somebody who changes something and changes it back wants to read both."""
        if len(message) > longest:
            message = message[: longest - 1] + "…"
        key = (uid, reason, message)
        if self._just_said(key) and not again:
            return
        queue, most = (self._normals, NORMALS) if type == "Normal" else (self._warnings, QUEUE)
        if len(queue) >= most:
            self._said.pop(queue.crowded_out(), None)
            self.dropped += 1
        if not self._normals:
            self._waiting_since = self._clock()
        queue.put(namespace, key, Said(self._now(), api_version, kind, namespace, name, uid, type, reason, message))
        self._filled.set()
        self._all_sent.clear()

    async def run(self) -> None:
        while True:
            await self._filled.wait()
            while self._warnings or self._normals:
                if not (self._warnings or self._normals_may_go()):
                    await self._sleep(LOOK)
                    continue
                await self._turn()
                if await self._deliver(_event(self._next(), self._component)):
                    self.sent += 1
                else:
                    self.failed += 1
            self._filled.clear()
            self._all_sent.set()

    def _normals_may_go(self) -> bool:
        if not self._normals:
            return False
        patient = self._clock() - self._waiting_since < PATIENCE and len(self._normals) < MANY
        return self._ending or not (patient and self._busy())

    def _next(self) -> Said:
        """In turn, if there are both that may go: many of one type do not delay the other."""
        normal = not self._warnings or (not self._normal_was_last and self._normals_may_go())
        self._normal_was_last = normal
        _, said = (self._normals if normal else self._warnings).take()
        return said

    async def drain(self, seconds: float) -> None:
        """Before the process ends: queued events get so much time to leave. `run` must still be running."""
        self._ending = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_sent.wait()

    def _just_said(self, key: Key) -> bool:
        now = self._clock()
        while self._said:
            oldest = next(iter(self._said))
            if now - self._said[oldest] < AGAIN and len(self._said) < REMEMBERED:
                break
            del self._said[oldest]
        if key in self._said:
            return True
        self._said[key] = now
        return False

    async def _turn(self) -> None:
        """Waits so that no more than BURST, and RATE a second, are sent."""
        now = self._clock()
        self._due = max(self._due, now - BURST / RATE) + 1 / RATE
        if self._due > now:
            await self._sleep(self._due - now)

    async def _deliver(self, event: models.Event) -> bool:
        for delay in (RETRY, None):
            try:
                await self._api.send(requests.create(resources.EVENTS, event.metadata.namespace, event))
                return True
            except ApiError as error:
                if error.status == 409:
                    return True  # the first attempt did arrive
                if error.status < 500 and error.status != 429:
                    return False  # forbidden, or the namespace is gone
            except KubeError:
                pass
            if delay is not None:
                await self._sleep(delay)
        return False


def _event(said: Said, component: str) -> models.Event:
    suffix = "." + secrets.token_hex(8)
    stamp = datetime.fromtimestamp(said.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return models.Event(
        metadata=models.ObjectMeta(
            name=said.name[: NAME - len(suffix)].rstrip("-.") + suffix, namespace=said.namespace or "default"
        ),
        involved_object=models.ObjectReference(
            kind=said.kind,
            name=said.name,
            api_version=said.api_version,
            namespace=said.namespace or msgspec.UNSET,
            uid=said.uid,
        ),
        type=said.type,
        reason=said.reason,
        message=said.message,
        first_timestamp=stamp,
        last_timestamp=stamp,
        source=models.EventSource(component=component),
        reporting_component=component,
    )
