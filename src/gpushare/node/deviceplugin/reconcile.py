"""Compares what kubelet really gave with the table and the pods' annotations, and corrects both.

A second after kubelet's last call it is asked which container has which units. `allocation.correct` corrects the table.
Then pods whose annotations differ are patched (`allocation.pod_annotations`), with the uid, so that a new pod of the
same name is never patched. Nothing waits for this: until then the plan counts, and the sums per GPU are the same.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.core.facts import names
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.loop import Loop
from gpushare.kubelet.podresources import Listed, NoAnswer
from gpushare.node.deviceplugin import kubelet_list
from gpushare.node.deviceplugin.allocation import correct, pod_annotations
from gpushare.node.deviceplugin.allocation.pod_annotations import Patch
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.pods import NodePod, NodePods
from gpushare.obs import log

QUIET_SECONDS: Final = 1.0  # without a call of kubelet, before it is asked
OVERDUE_SECONDS: Final = 3.0  # if kubelet is never quiet, it is asked after this time, in the middle of its own call
CATCH_UP_SECONDS: Final = 1.0  # limit for that: kubelet admits nothing else meanwhile
PATIENCE: Final = 10  # failed questions in a row, about a minute; then grants of ended pods are given up
GONE: Final = (404, 409, 422)

logger = log.get(__name__)


def is_admitted(node_pod: NodePod) -> bool:
    """Whether kubelet has admitted the pod: it reports containers only of pods it has admitted."""
    facts = node_pod.facts
    return bool(node_pod.pod.statuses()) or facts.running or facts.annotation(names.ALIYUN_ASSIGNED) == "true"


class Calls:
    """kubelet's calls to both services: whether one is running, and since when none is. Answered one at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.one_at_a_time = asyncio.Lock()
        self._running = 0
        self._last = clock()

    def __enter__(self) -> None:
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        self._last = self.clock()

    def quiet_in(self) -> float:
        """Seconds until kubelet may be asked; 0: now."""
        return QUIET_SECONDS if self._running else max(QUIET_SECONDS - (self.clock() - self._last), 0.0)


class Reconciler:
    """`ask` gets kubelet's list of who has which units. `changed` is called after the table was corrected."""

    def __init__(
        self,
        state: State,
        ask: Callable[[], Awaitable[list[Listed]]],
        api: Api,
        pods: NodePods,
        calls: Calls,
        changed: Callable[[], None],
    ) -> None:
        self.ask = ask
        self._state, self._api, self._pods, self._calls, self._changed = state, api, pods, calls, changed
        self._loop = Loop(self._update)
        self._loop.wake()
        self._uncertain = True
        self._last_list = calls.clock()  # when kubelet was last asked
        self._one_at_a_time = asyncio.Lock()
        self._begun = False
        self._failures = 0

    def due(self) -> None:
        """Something happened: kubelet's list may be different now."""
        self._uncertain = True
        self._loop.wake()

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def _update(self) -> bool:
        while (wait := self._calls.quiet_in()) > 0:
            await self._write()  # at once: other pods must not be sent to where a moved container is now
            await asyncio.sleep(wait)
        return await self.once()

    async def once(self) -> bool:
        """Asks kubelet if something is uncertain, and patches. True if nothing is left to do."""
        if self._uncertain:
            self._uncertain = False
            self._uncertain |= not await self.correct()
        return await self._write() and not self._uncertain

    async def catch_up(self) -> None:
        """For a kubelet that is never quiet for a second. Safe only while kubelet waits for GetPreferredAllocation:
        then no Allocate is running that a list could make it lose. Not between two containers of a pod, because kubelet
        may not list that pod yet."""
        if self._uncertain and self._calls.clock() - self._last_list > OVERDUE_SECONDS:
            await self.make_sure()

    async def make_sure(self) -> None:
        """Before a container is placed elsewhere than planned, or refused: units that seem to be held may be free, and
        kubelet knows. Safe at the same moment as `catch_up`."""
        if correct.is_uncertain(self._state) and not self._state.admitting():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self.correct()

    async def correct(self) -> bool:
        """Asks kubelet and corrects the table. True if nothing is uncertain afterwards."""
        async with self._one_at_a_time:
            return await self._correct()

    async def _correct(self) -> bool:
        self._last_list = self._calls.clock()
        upto, before = self._state.table.last, self._names()
        try:
            listed = await self.ask()
        except NoAnswer as error:
            logger.warn("kubelet does not answer which container has which GPU", why=str(error))
            self._guess()
        else:
            self._failures = 0
            if not self._begun:
                self._state.catalog.recall(name for entry in listed if not entry.kind.exclusive for name in entry.ids)
            after = self._names()
            uids = {name: uid for name, uid in after.items() if before.get(name) == uid}  # not of a pod just recreated
            entries = kubelet_list.held(self._state, listed, uids)
            started = {entry.owner.uid for entry in entries if entry.owner is not None}
            correct.correct(self._state, entries, self._admitted() | started, upto)
        self._begun = True
        self._changed()
        return not self._failures and not correct.is_uncertain(self._state)

    def _guess(self) -> None:
        """What is known without kubelet's list."""
        correct.adopt(self._state, self._admitted())
        if not self._begun:
            correct.assume(self._state, self._admitted())
        self._failures += 1
        if self._failures > PATIENCE:
            correct.give_up(self._state)

    def _names(self) -> dict[tuple[str, str], str]:
        return {(pod.namespace, pod.name): uid for uid, pod in self._state.plans.pods.items()}

    def _admitted(self) -> set[str]:
        return {
            uid for uid, node_pod in self._pods.pods.items() if uid in self._state.plans.pods and is_admitted(node_pod)
        }

    async def _write(self) -> bool:
        """Patches all annotations that are wrong. True if none of the patches failed."""
        patched = [await self._patch(patch) for patch in pod_annotations.patches(self._state)]
        return all(patched)

    async def _patch(self, patch: Patch) -> bool:
        pod = patch.pod
        try:
            await pod_requests.annotate(self._api, pod.namespace, pod.name, pod.uid, patch.annotations)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status in GONE:
                return True
            logger.warn("cannot write which GPU a pod has", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            return False
        logger.info("annotations corrected", pod=f"{pod.namespace}/{pod.name}", **patch.annotations)
        return True
