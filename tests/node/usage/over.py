"""Pods on one GPU that use what a test says, an event book, and time that passes when a test says so."""

from typing import Any

import msgspec

from gpushare.gpu.sample import Sample
from gpushare.node.pods import NodePods, Pod
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Tolerance, Watch
from gpushare.node.usage.overuse_events import OverUses
from tests.support import objects

MIB = 1 << 20
GRACE = 60.0


class Book:
    """Instead of a recorder."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []  # type, reason, pod, text

    def record(self, *, kind: str, namespace: str, name: str, uid: str, type: str, reason: str, message: str) -> None:
        assert (kind, uid) == ("Pod", f"{name}-uid")
        self.events.append((type, reason, f"{namespace}/{name}", message))

    def take(self, *reasons: str) -> list[tuple[str, str, str, str]]:
        """Those of these reasons, or all, once."""
        taken = [event for event in self.events if not reasons or event[1] in reasons]
        self.events = []
        return taken


class Scene:
    def __init__(self, *, gpus: int = 1) -> None:
        self.now, self.pods, self.book, self._gpus = 0.0, NodePods(), Book(), gpus
        self.over = OverUses(
            "gpu-a", Watch(Tolerance(), GRACE), self.pods, self.book, clock=lambda: self.now  # type: ignore[arg-type]
        )  # fmt: skip

    def runs(self, name: str, **more: Any) -> None:
        """`more` is added to metadata and spec."""
        made = objects.pod({"name": name, "containers": {"main": 1000}, "direct": True, "namespace": "ml"})
        made["metadata"] |= {key: more.pop(key) for key in ("deletionTimestamp", "annotations") if key in more}
        made["spec"] |= more
        self.pods.upsert(msgspec.convert(made, Pod))

    def look(self, at: float, *uses: ContainerUse, on: int = 0) -> None:
        """At this time the GPU is used so."""
        self.now = at
        sample = Sample(f"GPU-{on}", on)
        gpus = [
            GpuUse(i, f"GPU-{i}", "T4", 16000 * MIB, 0, sample=sample, containers=uses if i == on else ())
            for i in range(self._gpus)
        ]
        self.over.look(Usage("gpu-a", tuple(gpus)))

    def lasts(self, *uses: ContainerUse) -> None:
        """Longer than the grace."""
        self.look(self.now, *uses)
        self.look(self.now + GRACE + 1, *uses)


def use(pod: str, granted: int, used: int | None) -> ContainerUse:
    amount = used * MIB if used is not None else None
    return ContainerUse("ml", pod, f"{pod}-uid", "main", granted * MIB, used=amount)
