"""The words of the core: a GPU, what a node offers, what a pod asks, a refusal.

All of it is frozen data. Only the `ledger` changes over time, and it is made of these.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from gpushare.core.facts import objects, units

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
    links: tuple[tuple[str, int], ...] = ()  # NVLinks to other GPUs of the node: their uuid, and how many

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
    mps_down: str = ""  # why its MPS daemon serves nobody; empty: it does, or nobody looks after it
    only_mps: bool = False  # only clients of its MPS daemon can use its GPUs
    reserved: bool = False  # an admin reserved it: whether that counts, the policy says
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
    """What a container asks for: memory, whole GPUs, or MPS shares. `kinds` has one object for each kind, so kinds are
    compared by identity, and cost little as part of a key."""

    __slots__ = ("counts_gpus", "exclusive", "in_words", "name", "not_sold", "only_pinned", "parse", "sells", "slots")

    def __init__(
        self,
        name: str,
        *,
        parse: Callable[[str, str, objects.Quantity, Unit | None], int | Refusal],
        in_words: Callable[[str, int], str],
        sells: Callable[[NodeFacts, Gpu], int],
        exclusive: bool = False,
        slots: int = 0,
        not_sold: Refusal | None = None,
        only_pinned: bool = False,
    ) -> None:
        self.name = name
        self.parse = parse  # the amount out of: resource, container, what is written there, unit of the pod
        self.in_words = in_words  # a share in a sentence, out of: its memory in words, the number of its GPUs
        self.sells = sells  # how much of it a healthy GPU of a node is
        self.exclusive = exclusive  # it takes GPUs that no pod uses
        self.slots = slots  # MPS slots that it takes on each of its GPUs
        self.counts_gpus = exclusive or slots > 0  # its amount is a number of GPUs; else it is units of memory
        self.not_sold = not_sold  # what a node says that does not sell it; None: every node that shares GPUs does
        self.only_pinned = only_pinned  # without our env such a container asks somebody else

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Share(Data, frozen=True):
    """What one container asks: `units` split evenly over `gpus` GPUs, that many whole GPUs, or one MPS slot and
    `slot_bytes` on each of that many."""

    container: str
    position: int  # its key in the allocation annotation
    role: Role
    kind: Kind
    units: int
    gpus: int = 1
    visible: str = ""  # the annotation this container's env refers to; empty: none
    slot_bytes: int = 0  # memory on each GPU that comes with an MPS slot; 0: the GPU's total ÷ slots
    limited: bool = False  # its env takes the limits of an MPS client from an annotation of ours

    @property
    def each(self) -> int:
        """Units on each of its GPUs; 0 if the amount does not tell, but a size in bytes or the GPU."""
        return self.units // self.gpus

    def each_in(self, unit: Unit) -> int:
        """Units on each of its GPUs on nodes with that unit; 0 if that depends on the GPU."""
        return units.in_unit(self.slot_bytes, unit) if self.slot_bytes else self.units // self.gpus

    def on(self, gpu: Gpu, facts: NodeFacts) -> int:
        """Units that it takes on a GPU of a node."""
        if self.units:
            return self.units // self.gpus
        if not self.kind.slots:
            return gpu.total
        return self.each_in(facts.unit) or (max(gpu.total // facts.slots, 1) if facts.slots else gpu.total)

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
    by_mps: bool = False  # all its containers are clients of MPS: they have a share of it, or its pipes mounted

    @property
    def one_share(self) -> bool:
        """One container on one GPU, the common case: comparing with a node's largest free GPU decides."""
        return len(self.shares) == 1 and self.shares[0].gpus == 1 and not self.shares[0].kind.counts_gpus

    @property
    def one_gpu(self) -> bool:
        """Its containers ask for one GPU in all."""
        return len(self.shares) == 1 and self.shares[0].gpus == 1

    @property
    def shape(self) -> "Shape":
        """Everything that decides where it fits. Requests of equal shape get equal answers on equal nodes."""
        return (
            self.pin,
            self.unit,
            self.by_mps,
            tuple([(s.role, s.kind, s.units or s.slot_bytes, s.gpus) for s in self.shares]),
        )

    @property
    def has_options(self) -> bool:
        """Whether the pod says something beside its amounts (`options`) that counts only until it is bound."""
        return bool(self.unit or self.policy or any(share.slot_bytes for share in self.shares))

    @property
    def amount(self) -> int:
        """The gpu-mem units of all containers together."""
        return sum(share.units for share in self.shares)


Shape = tuple[Pin | None, Unit | None, bool, tuple[tuple[Role, Kind, int, int], ...]]


class Charge(NamedTuple):
    """What a pod holds on one GPU of its node."""

    gpu: int  # position in `NodeFacts.gpus`
    units: int
    slots: int = 0


Charges = tuple[Charge, ...]

Places = tuple[tuple[int, ...], ...]
"""For each share of a request, the positions of its GPUs in `NodeFacts.gpus`."""


class Rules(Data, frozen=True):
    """What a pod's spec says about the nodes it may use; `intree.admits` compares it with a node. A pod without rules
    may use every node that has no cordon and no taint."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[objects.Term, ...] | None = None  # required node affinity: one of them must be met; None: it has none
    tolerations: tuple[objects.Toleration, ...] = ()
    node: str = ""  # its annotation nodeName: no other one


class Needs(Data, frozen=True):
    """What a pod says that counts for the points of a node (`scoring.node_score`). Equal needs get equal points."""

    amounts: tuple[int, int, int] = (0, 0, 0)  # CPU, memory and storage that it asks for
    preferred: tuple[objects.PreferredTerm, ...] = ()
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
    spec_unknown: bool = False  # the spec does not tell its memory: a container asks for whole GPUs or MPS shares
    asks_nvidia: bool = False  # a container asks for GPUs that somebody else gives out, by a name that we sell too
    controlled: bool = False  # a controller would make a new one if it were gone
    pinned: bool = False  # every container that asks for GPUs learns them from an annotation of ours
    annotations: tuple[tuple[str, str], ...] = ()  # those that only gpushare writes
    rules: Rules | None = None  # which nodes it may use, while it is not bound; None: it has no rules
    needs: Needs | None = None  # what counts for the points of a node, if any do, while it is not bound
    cpu: int = 0  # that it asks of its node, in thousandths
    memory: int = 0  # the same in MiB

    @property
    def only_node(self) -> str:
        """The node that its annotation names; empty: none."""
        return self.rules.node if self.rules is not None else ""

    @property
    def running(self) -> bool:
        return self.phase == "Running"

    def annotation(self, key: str) -> str | None:
        for name, value in self.annotations:
            if name == key:
                return value
        return None
