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
        self._sampled_at = 0.0
        self.over = OverUses(
            "gpu-a", Watch(Tolerance(), GRACE), self.pods, self.book, clock=lambda: self.now  # type: ignore[arg-type]
        )  # fmt: skip

    def runs(self, name: str, **more: Any) -> None:
        """`more` is added to metadata and spec."""
        made = objects.pod({"name": name, "containers": {"main": 1000}, "direct": True, "namespace": "ml"})
        made["metadata"] |= {key: more.pop(key) for key in ("deletionTimestamp", "annotations") if key in more}
        made["spec"] |= more
        self.pods.upsert(msgspec.convert(made, Pod))

    def look(self, at: float, *uses: ContainerUse, on: int = 0, again: bool = False) -> None:
        """At this time the GPU is used so. `again`: as the driver said before; it has said nothing since."""
        self._sampled_at -= 1 if again else 0
        self.look_at(at, *(uses if gpu == on else () for gpu in range(self._gpus)))

    def look_at(self, at: float, *gpus: tuple[ContainerUse, ...]) -> None:
        """The same for all GPUs."""
        self.now = at
        self._sampled_at += 1
        made = [
            GpuUse(i, f"GPU-{i}", "T4", 16000 * MIB, 0, sample=Sample(f"GPU-{i}", i), containers=uses)
            for i, uses in enumerate(gpus)
        ]
        self.over.look(Usage("gpu-a", tuple(made), sampled_at=self._sampled_at))

    def lasts(self, *uses: ContainerUse) -> None:
        """Longer than the grace."""
        self.look(self.now, *uses)
        self.look(self.now + GRACE + 1, *uses)


def use(pod: str, granted: int, used: int | None) -> ContainerUse:
    amount = used * MIB if used is not None else None
    return ContainerUse("ml", pod, f"{pod}-uid", "main", granted * MIB, used=amount)
