"""The words of the core: a GPU, what a node offers, what a pod asks, a refusal.

All of it is frozen data. Only the `ledger` changes over time, and it is made of these.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

import msgspec

from gpushare.core.facts import objects

Unit = Literal["MiB", "GiB"]


class Data(msgspec.Struct, frozen=True, gc=False):
    """Immutable, compared by value, and without cycles, so that the garbage collector can skip it."""


class Refusal(Data, frozen=True):
    """A "no" and its reason. `message` names the request only: kube-scheduler counts equal strings."""

    code: str
    message: str
    forever: bool = False  # it can never fit there, whatever ends or is freed
    detail: str = ""  # more for the person who wrote the request


class Pin(StrEnum):
    """Who makes a container see its GPU."""

    DIRECT = "direct"  # the binding itself, through an env taken from an annotation
    PLUGIN = "plugin"  # our device plugin
    ALIYUN = "aliyun"  # Aliyun's device plugin
    NVIDIA = "nvidia"  # NVIDIA's plugin, or ours in its place: such a node sells whole GPUs or replicas, and no shares


class Gpu(Data, frozen=True):
    """One GPU as its node publishes it. `uuid` is empty on nodes of Aliyun's plugin, which publishes none."""

    index: int
    uuid: str
    total: int
    healthy: bool = True
    why: str = ""
    model: str = ""

    @property
    def key(self) -> str:
        """What identifies the GPU although indices may change: its uuid, or its index if it has none."""
        return self.uuid or str(self.index)


class Sold(Data, frozen=True):
    """A resource that a node sells without the extender, as NVIDIA's plugin does: each GPU, or replicas of it."""

    resource: str
    replicas: int = 1  # of each GPU
    sharing: str = "none"  # none, time-slicing or mps


class NodeFacts(Data, frozen=True):
    """What a node offers. `blocked`: why no new pod may go there at all."""

    name: str
    unit: Unit
    pin: Pin
    gpus: tuple[Gpu, ...]
    blocked: Refusal | None = None
    limit: int = 0  # units of memory that one container may ask; 0: no limit
    slots: int = 0  # MPS slots of each GPU; 0: it sells none
    nvidia_whole: bool = False  # it sells its whole GPUs as nvidia.com/gpu too, out of the ledger
    sold: tuple[Sold, ...] = ()  # what it sells without the extender; then its pin is NVIDIA

    @property
    def capacity(self) -> int:
        return sum(gpu.total for gpu in self.gpus)


class Role(StrEnum):
    """When a container runs: beside the others (app, sidecar) or before them (init)."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


class Kind:
    """What a container asks for: memory, or whole GPUs. `kinds` has one object for each kind, so kinds are compared by
    identity, and cost little as part of a key."""

    __slots__ = ("exclusive", "in_words", "name", "parse")

    def __init__(
        self,
        name: str,
        *,
        exclusive: bool,
        parse: Callable[[str, str, objects.Quantity, Unit | None], int | Refusal],
        in_words: Callable[[str, int], str],
    ) -> None:
        self.name = name
        self.exclusive = exclusive  # it counts GPUs, and takes those that no pod uses; else it counts units of memory
        self.parse = parse  # the amount out of: resource, container, what is written there, unit of the pod
        self.in_words = in_words  # a share in a sentence, out of: its units in words, the number of its GPUs

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Share(Data, frozen=True):
    """What one container asks: `units` split evenly over `gpus` GPUs, or that many whole GPUs."""

    container: str
    position: int  # its key in the allocation annotation
    role: Role
    kind: Kind
    units: int
    gpus: int = 1
    visible: str = ""  # the annotation this container's env refers to; empty: none

    @property
    def each(self) -> int:
        """Units on each of its GPUs; 0 for whole GPUs, whose size depends on the GPU."""
        return self.units // self.gpus

    def on(self, gpu: Gpu) -> int:
        """Units that it takes on a GPU."""
        return gpu.total if self.kind.exclusive else self.units // self.gpus

    @property
    def amount(self) -> tuple[Kind, int, int]:
        """Equal for two shares that kubelet cannot tell apart by what they ask."""
        return self.kind, self.units, self.gpus


class Request(Data, frozen=True):
    """What a pod asks. `shares` are in the order in which kubelet starts the containers."""

    shares: tuple[Share, ...]
    pin: Pin | None  # DIRECT or PLUGIN: which nodes can serve it; None: its containers contradict each other
    unit: Unit | None = None
    policy: str | None = None

    @property
    def one_share(self) -> bool:
        """One container on one GPU, the common case: comparing with a node's largest free GPU decides."""
        return len(self.shares) == 1 and self.shares[0].gpus == 1 and not self.shares[0].kind.exclusive

    @property
    def shape(self) -> "Shape":
        """Everything that decides where it fits. Requests of equal shape get equal answers on equal nodes."""
        return (self.pin, self.unit, tuple([(s.role, s.kind, s.units, s.gpus) for s in self.shares]))

    @property
    def amount(self) -> int:
        """The gpu-mem units of all containers together."""
        return sum(share.units for share in self.shares)


Shape = tuple[Pin | None, Unit | None, tuple[tuple[Role, Kind, int, int], ...]]

Places = tuple[tuple[int, ...], ...]
"""For each share of a request, the positions of its GPUs in `NodeFacts.gpus`."""


class Rules(Data, frozen=True):
    """What a pod's spec says about the nodes it may use; `intree.admits` compares it with a node. A pod without rules
    may use every node that has no cordon and no taint."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[objects.Term, ...] | None = None  # required node affinity: one of them must be met; None: it has none
    tolerations: tuple[objects.Toleration, ...] = ()


class PodFacts(Data, frozen=True):
    """A pod as the API server shows it, reduced to what counts. `request` is a refusal if the request is invalid, and
    None if the pod asks for no GPU."""

    uid: str
    namespace: str
    name: str
    request: Request | Refusal | None
    node: str = ""
    priority: int = 0
    created: str = ""
    finished: bool = False
    terminating: bool = False
    nominated: str = ""
    unschedulable: str = ""  # kube-scheduler's words, while the pod's condition is Unschedulable
    waits_since: str = ""  # since when it is
    phase: str = "Pending"
    failed_reason: str = ""
    slow_volumes: bool = False
    spec_units: int = 0  # gpu-mem of all containers, also of an invalid request
    spec_exclusive: bool = False  # a container asks for whole GPUs, also in an invalid request
    pinned: bool = False  # every container that asks for GPUs learns them from an annotation of ours
    annotations: tuple[tuple[str, str], ...] = ()  # those that only gpushare writes
    rules: Rules | None = None  # which nodes it may use, while it is not bound; None: it has no rules

    @property
    def running(self) -> bool:
        return self.phase == "Running"

    def annotation(self, key: str) -> str | None:
        for name, value in self.annotations:
            if name == key:
                return value
        return None
