"""Events about containers that use more of a GPU than they asked for: when it is certain, while it lasts, at its end.

Reads each pass of the sampler. It must be the first to do so: others publish `current`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from gpushare.kube.events import MESSAGE, Recorder
from gpushare.node.pods import NodePods
from gpushare.node.usage.model import Usage
from gpushare.node.usage.overuse import Key, OverUse, Watch
from gpushare.obs import log

OVER_USE, ENDED = "GPUOverUse", "GPUOverUseEnded"  # reasons of events
AGAIN_SECONDS: Final = 600.0  # while it lasts
USES: Final = "container {container} uses {used} MiB of GPU {gpu} on {node}, and asked for {granted} MiB; "
ALONE: Final = "no other pod is on this GPU"
AT_RISK: Final = "pods at risk: {pods}"
USES_LESS: Final = "container {container} no longer uses more of GPU {gpu} on {node} than it asked for"
MIB: Final = 1 << 20

logger = log.get(__name__)


class OverUses:
    """`current`: those that have lasted longer than the grace, the largest first. `evictions`: pods that were evicted
    for it."""

    def __init__(
        self,
        node: str,
        watch: Watch,
        pods: NodePods,
        recorder: Recorder,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._watch, self._pods, self._recorder, self._clock = node, watch, pods, recorder, clock
        self.evictions = 0
        self._sampled_at: float | None = None  # of the figures of the last look
        self._told: dict[Key, tuple[OverUse, float]] = {}  # and when

    @property
    def current(self) -> tuple[OverUse, ...]:
        return self._watch.current

    def is_certain(self, over: OverUse) -> bool:
        """Whether the last look has seen it. Else its use is not known at the moment."""
        return over.at == self._watch.at

    def look(self, usage: Usage) -> None:
        now = self._clock()
        again = usage.sampled_at is not None and usage.sampled_at == self._sampled_at
        self._sampled_at = usage.sampled_at
        self._watch.look(usage.gpus, now, again=again)
        for over in self.current:
            told = self._told.get(over.key)
            if told is None or now - told[1] >= AGAIN_SECONDS:
                self._told[over.key] = over, now
                logger.warn("a container uses more of a GPU than it asked for", **fields(over))
                self.tell(over, "Warning", OVER_USE, sentence(over, self._node))
        self._end(usage)

    def tell(self, over: OverUse, kind: str, reason: str, message: str) -> None:
        """An event on its pod."""
        self._recorder.record(
            kind="Pod", namespace=over.namespace, name=over.pod, uid=over.key.pod_uid, type=kind, reason=reason,
            message=message,
        )  # fmt: skip

    def _end(self, usage: Usage) -> None:
        """Only a use that is known to be allowed again is told as an end; a pod that is gone needs no event."""
        for key in self._told.keys() - {over.key for over in self.current}:
            over, _ = self._told.pop(key)
            if self._is_known(usage, key) and key.pod_uid in self._pods.pods:
                words = USES_LESS.format(container=key.container, gpu=over.gpu, node=self._node)
                self.tell(over, "Normal", ENDED, words)

    def _is_known(self, usage: Usage, key: Key) -> bool:
        return any(
            use.used is not None
            for gpu in usage.gpus
            for use in gpu.containers
            if (use.pod_uid, use.container, gpu.uuid) == key
        )


def sentence(over: OverUse, node: str) -> str:
    """With as many neighbours as an event has room for."""
    begin = USES.format(
        container=over.key.container, used=over.used // MIB, gpu=over.gpu, node=node, granted=over.granted // MIB
    )
    return begin + (AT_RISK.format(pods=_listed(over.neighbours, MESSAGE - len(begin))) if over.neighbours else ALONE)


def fields(over: OverUse) -> dict[str, object]:
    """For a line of the log."""
    return {
        "namespace": over.namespace, "pod": over.pod, "container": over.key.container, "gpu": over.key.uuid,
        "used_mib": over.used // MIB, "granted_mib": over.granted // MIB,
    }  # fmt: skip


def _listed(pods: Sequence[str], room: int) -> str:
    """`a, b and 3 more`."""
    for shown in range(len(pods), 0, -1):
        more = f" and {len(pods) - shown} more" if shown < len(pods) else ""
        text = ", ".join(pods[:shown]) + more
        if len(AT_RISK.format(pods=text)) <= room:
            return text
    return f"{len(pods)}"
