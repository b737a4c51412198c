"""The words of packing: what a pod takes, what a node has left, which pods come, and what a policy answers."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from gpushare.core.facts.model import Data, PodFacts, Request, Role

UNKNOWN = 1 << 50  # of CPU or memory of a node that nobody told: more than any pod asks


class Ask(Data, frozen=True):
    """What a pod takes of a node. A pod of several containers is the sum of them."""

    cpu: int  # thousandths
    memory: int  # MiB
    gpus: int  # GPUs that it uses; 0: none
    units: int  # of memory on each of them; 0: each of them wholly

    @staticmethod
    def of(pod: PodFacts) -> "Ask":
        if not isinstance(pod.request, Request):
            return Ask(pod.cpu, pod.memory, 0, 0)
        shares = [share for share in pod.request.shares if share.role is not Role.INIT] or pod.request.shares
        gpus = sum([share.gpus for share in shares])
        return Ask(pod.cpu, pod.memory, gpus, sum([share.units for share in shares]) // gpus)


class View:
    """What is left of a node, by position of its GPUs. Made anew whenever the node changes. `kept` is for what scorers
    worked out about the node as it is: each in a place of its own, with the scorer, so that a new one begins anew."""

    __slots__ = ("cpu", "empty", "free", "held", "kept", "memory", "models", "totals")

    def __init__(
        self,
        free: Sequence[int],
        totals: Sequence[int],
        models: Sequence[str],
        cpu: int = UNKNOWN,
        memory: int = UNKNOWN,
        empty: Sequence[bool] | None = None,
        held: frozenset[int] = frozenset(),
    ) -> None:
        self.free = tuple(free)  # units; an unhealthy GPU has none
        self.totals = tuple(totals)
        self.models = tuple(models)
        self.cpu, self.memory = cpu, memory  # thousandths and MiB that pods may still ask; never negative
        # GPUs that nobody uses. No scorer asks; plans for whole GPUs do, so nodes that differ in it are not alike.
        self.empty = tuple(empty) if empty is not None else tuple([a == b for a, b in zip(free, totals, strict=True)])
        self.held = held  # how many GPUs the pods here have: 0 stands for a part of one
        self.kept: dict[int, object] = {}

    @property
    def content(self) -> Hashable:
        """Equal for nodes that are alike. They get equal keys, and share one view."""
        return self.free, self.totals, self.models, self.cpu, self.memory, self.empty, self.held


class PodType(Data, frozen=True):
    """Pods that came, all with the same ask. `models`: the GPU models that they may use; None: any. `written`: how a
    trace says that, for `fgd` alone: there the same in other words is another kind of pod."""

    ask: Ask
    count: int
    models: frozenset[str] | None = None
    written: str = ""


class GpuClass(Data, frozen=True):
    """GPUs of the cluster that are alike."""

    model: str
    total: int  # units of each
    count: int


class Mixture(Data, frozen=True):
    """What a policy knows of the cluster as a whole: the pods that came so far, and what all nodes have together."""

    pods: tuple[PodType, ...] = ()
    gpus: tuple[GpuClass, ...] = ()
    cpu: int = 0
    memory: int = 0

    def same_cluster(self, other: "Mixture") -> bool:
        """Whether only the pods differ."""
        return (self.gpus, self.cpu, self.memory) == (other.gpus, other.cpu, other.memory)


class Choice(NamedTuple):
    key: int  # of a node: the smaller the better
    gpu: int  # the position of the best GPU


class Scorer(Protocol):
    """A policy, ready for a mixture. Pure, apart from what it keeps in `View.kept`."""

    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        """For a pod of one container that asks for one GPU: the best GPU, and the key of the node with it. None: no
        GPU has room."""
        ...

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        """The key of the node if the GPUs keep so much free: for pods that a plan was made for, and (with nothing
        changed) for pods without GPUs."""
        ...
