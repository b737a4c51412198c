"""Audits the node whenever something changed, and reports each problem: a log line, a Warning event and a metric.

What is a problem is decided in `findings` and `visible_gpus`. Events with the same text are at least five minutes apart
(`kube.events`), so a problem that stays is reported again, but not often.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gpushare.core.explain.event_texts import AUDIT_CODES
from gpushare.core.facts.model import NodeFacts, Unit
from gpushare.kube.events import Recorder
from gpushare.kube.labels.this_node import ThisNode
from gpushare.node.audit import findings, visible_gpus
from gpushare.node.audit.finding import ONCE, Finding
from gpushare.node.pods import NodePods
from gpushare.obs import log

SETTLE_SECONDS = 2.0  # for changes that belong together, such as the two patches of a swap
AGAIN_SECONDS = 60.0

logger = log.get(__name__)


class Auditor:
    """`unit`: what the node is configured to count in. `findings` are the problems there are now."""

    def __init__(
        self,
        recorder: Recorder,
        pods: NodePods,
        this_node: ThisNode,
        *,
        unit: Unit,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.findings: list[Finding] = []
        self._recorder, self._pods, self._this_node, self._unit, self._sleep = recorder, pods, this_node, unit, sleep
        self._facts: NodeFacts | None = None
        self._starts: dict[str, visible_gpus.Starts] = {}  # by uid
        self._wake = asyncio.Event()
        for uid in pods.pods:
            self._pod_changed(uid)
        pods.listeners.append(self._pod_changed)
        pods.uncounted_listeners.append(self._wake.set)
        this_node.listeners.append(self._wake.set)

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
        """How many problems of each kind."""
        codes = [finding.code for finding in self.findings]
        return {code: codes.count(code) for code in AUDIT_CODES}

    def _pod_changed(self, uid: str) -> None:
        # At once, not at the next audit: only so is it known whether an annotation changed before or after a start.
        before, node_pod = self._starts.pop(uid, {}), self._pods.pods.get(uid)
        if node_pod is not None:
            self._starts[uid] = visible_gpus.starts(node_pod, before)
        self._wake.set()

    def _audit(self) -> None:
        if self._facts is None or self._this_node.node is None:
            return
        pods, uncounted = self._pods.pods.values(), self._pods.uncounted.values()
        now = findings.findings(self._facts, pods, self._this_node.node, self._starts, self._unit)
        now += visible_gpus.unasked(self._this_node.node, [*pods, *uncounted])
        known = {finding.message for finding in self.findings}
        for finding in now:
            if finding.message not in known:
                logger.warn("audit", found=finding.code, what=finding.message)
            if finding.message not in known or finding.code not in ONCE:
                self._record(finding)
        self.findings = now

    def _record(self, finding: Finding) -> None:
        kind, namespace, name, uid = "Node", "", self._this_node.name, self._this_node.name
        if finding.pod is not None:
            kind, namespace, name, uid = "Pod", finding.pod.namespace, finding.pod.name, finding.pod.uid
        self._recorder.record(
            kind=kind, namespace=namespace, name=name, uid=uid,
            type="Warning", reason=finding.code, message=finding.message,
        )  # fmt: skip
