"""Audits the node whenever something changed, and says what it found: a Warning event, and a number among the metrics.

What to look for is in `audit`. Events of one sentence are at least five minutes apart (`kube.events`), so what stays
wrong is said again and again, but not often.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gpushare.core.facts.model import NodeFacts, Unit
from gpushare.kube.events import Recorder
from gpushare.node.audit import findings
from gpushare.node.audit.findings import Finding
from gpushare.node.pods import NodePods
from gpushare.node.this_node import ThisNode
from gpushare.obs import log

SETTLE_SECONDS = 2.0  # two patches of a swap do not arrive together, and neither do bursts of pods
AGAIN_SECONDS = 60.0

logger = log.get(__name__)


class Auditor:
    """`unit`: what the node was asked to count in. `found` is what is wrong now."""

    def __init__(
        self,
        recorder: Recorder,
        pods: NodePods,
        own: ThisNode,
        *,
        unit: Unit,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.found: list[Finding] = []
        self._recorder, self._pods, self._own, self._unit, self._sleep = recorder, pods, own, unit, sleep
        self._facts: NodeFacts | None = None
        self._starts: dict[str, findings.Starts] = {}  # by uid
        self._wake = asyncio.Event()
        for uid in pods.pods:
            self._pod_changed(uid)
        pods.listeners.append(self._pod_changed)
        pods.uncounted_listeners.append(self._wake.set)
        own.listeners.append(self._wake.set)

    def see(self, facts: NodeFacts) -> None:
        """What is published now."""
        self._facts = facts
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await self._sleep(SETTLE_SECONDS)
            self._wake.clear()
            self._audit()

    def counts(self) -> dict[str, int]:
        """How much of each kind is wrong."""
        codes = [finding.code for finding in self.found]
        return {code: codes.count(code) for code in findings.CODES}

    def _pod_changed(self, uid: str) -> None:
        # At once: whether an annotation changed before or after a start is seen only by looking each time.
        before, seen = self._starts.pop(uid, {}), self._pods.pods.get(uid)
        if seen is not None:
            self._starts[uid] = findings.starts(seen, before)
        self._wake.set()

    def _audit(self) -> None:
        if self._facts is None or self._own.node is None:
            return
        pods, uncounted = self._pods.pods.values(), self._pods.uncounted.values()
        found = findings.findings(self._facts, pods, self._own.node, self._starts, self._unit)
        found += findings.unasked(self._own.node, [*pods, *uncounted])
        known = {finding.message for finding in self.found}
        for finding in found:
            if finding.message not in known:
                logger.warn("audit", found=finding.code, what=finding.message)
            self._say(finding)
        self.found = found

    def _say(self, finding: Finding) -> None:
        kind, namespace, name, uid = "Node", "", self._own.name, self._own.name
        if finding.pod is not None:
            kind, namespace, name, uid = "Pod", finding.pod.namespace, finding.pod.name, finding.pod.uid
        self._recorder.record(
            kind=kind, namespace=namespace, name=name, uid=uid,
            type="Warning", reason=finding.code, message=finding.message,
        )  # fmt: skip
