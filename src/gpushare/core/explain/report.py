"""The form of an explanation: one object, for people and for programs.

Frozen data only. The extender's `/explain` sends it, `gpushare why` shows it or prints it as JSON. Keys are only ever
added. A field with its default value is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

VERSION = 1
VERDICTS = ("runs", "fits", "refused", "never", "invalid")  # from good to bad
GPUSHARE, SCHEDULER, KUBELET, API_SERVER = OWNERS = ("gpushare", "kube-scheduler", "kubelet", "kube-apiserver")
# Codes beside those of the refusals.
NO_REQUEST, FITS, BOUND, ENDED, KEPT_OFF = "NoRequest", "Fits", "Bound", "Ended", "KeptOff"
NOT_ADMITTED = "NotAdmitted"
# Codes of refusals for want of room: the node may be used, but its GPUs have too little.
ROOM = ("NoSingleGpu", "NoHealthyGpu", "NoGpusEach", "NoGpusFor", "NoWholeGpu", "NoInitGpu", "NoSlot", "NoMpsMemory",
        "KeptForOther")  # fmt: skip
# How we know what admission makes of a pod that does not exist yet: by a dry run; by reading gpushare's admission
# policy; because all nodes pin in the same way; or not at all.
DRY_RUN, READ, BY_NODES, UNKNOWN = ADMISSIONS = ("dry-run", "read", "nodes", "unknown")


class Outcome(NamedTuple):
    """The answer in one line."""

    verdict: str  # one of VERDICTS
    owner: str  # one of OWNERS: whose answer it is
    code: str
    message: str
    detail: str = ""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why one node does not take the pod. `detail`: more about it, for people."""

    code: str
    message: str
    detail: str = ""


class GpuView(msgspec.Struct, frozen=True, omit_defaults=True):
    index: int
    total: int
    free: int
    short: int | None
    healthy: bool
    pods: int
    why: str = ""  # the GPU is unhealthy
    slots: int = 0  # MPS slots that it has
    free_slots: int = 0


class SoldView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource that a node sells by count, without gpushare."""

    resource: str
    total: int  # that may be given out
    free: int
    short: int = 0  # how many are missing for this pod
    unhealthy: int = 0
    sharing: str = ""  # none, time-slicing or mps; empty: not known


class NodeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node. `fits` and `gpushare`: gpushare's answer. `scheduler`: why kube-scheduler does not use this node."""

    name: str
    fits: bool
    unit: str | None
    gpushare: Reason | None
    scheduler: Reason | None
    gpus: list[GpuView]  # the one with the most free first
    lower: int = 0  # pods there of a lower priority than this one
    sold: list[SoldView] = []  # for a pod that asks by count


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that holds GPU memory; `gpu` where it matters which."""

    pod: str
    units: int
    priority: int
    gpu: int | None = None


class Spot(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod has, or would get, on one GPU, and what is free there now."""

    gpu: int
    units: int
    free: int | None  # None: the node could not be read, like the next
    total: int | None
    containers: list[str] = []  # that see this GPU
    slots: int = 0  # MPS slots


class UseView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a container was measured to use of a GPU. In MiB, whatever the unit of the node is."""

    container: str
    gpu: int
    asked_mib: int
    used_mib: int
    over_mib: int = 0  # above what it asked


class Way(msgspec.Struct, frozen=True, omit_defaults=True):
    """A way out: `way` is shrink, split, heal, wait, end, evict, free, tolerate or ask (for another resource)."""

    way: str
    node: str | None = None
    gpu: int | None = None  # heal without it: all unhealthy GPUs of the node
    units: int | None = None  # shrink, split: to ask, on each GPU; free: that must come free there; ask: that are free
    gpus: int | None = None
    pods: list[str] | None = None  # end: any one of these; evict: all of them
    count: int | None = None  # of those pods, if more than are named
    holders: list[Holder] | None = None  # the same pods, the cheapest first
    spots: list[Spot] | None = None  # wait: where it would go
    taint: str | None = None
    resource: str | None = None  # ask
    why: str | None = None  # heal: why the GPU is unhealthy


class GpuScore(msgspec.Struct, frozen=True, omit_defaults=True):
    gpu: int
    points: int
    terms: dict[str, int]  # what they consist of
    chosen: bool = False  # the pod would get this one


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node scores by a policy with points: `gpu_weight` times the points of its GPUs, `node_weight` times the
    sum of `node`, and `extra`."""

    name: str
    score: int
    points: int  # of the chosen GPUs together
    gpus: list[GpuScore]
    gpu_weight: float = 1.0
    node_weight: float = 0.0
    node: dict[str, int] = {}  # the points of the node itself
    extra: int = 0  # because it has several GPUs


class PolicyView(msgspec.Struct, frozen=True, omit_defaults=True):
    """By what a place is chosen."""

    name: str
    settings: dict[str, str] = {}  # of the policy ConfigMaps, with their keys


class KeptView(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs that are kept for a pod which has waited long, and how much must still come free there."""

    node: str
    gpus: list[int]
    short: int
    unit: str
    slots: int = 0  # MPS slots that must still come free


class PodView(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str
    name: str
    phase: str
    node: str | None
    priority: int
    preempts: bool = True  # may have others of lower priority evicted
    deleting: bool = False
    started: str | None = None  # when kubelet took it


class ShareView(msgspec.Struct, frozen=True, omit_defaults=True):
    container: str
    units: int
    gpus: int
    whole: bool
    mps: bool = False  # one MPS slot on each GPU
    slot_bytes: int = 0  # the memory that comes with a slot; 0: the GPU's total ÷ slots


def one_share(shares: Sequence[ShareView]) -> bool:
    """One container that asks for memory on one GPU: the GPU can be named, and how much is missing there."""
    return len(shares) == 1 and shares[0].gpus == 1 and not shares[0].whole and not shares[0].mps


class RequestView(msgspec.Struct, frozen=True):
    unit: str | None
    shares: list[ShareView]


class AskView(msgspec.Struct, frozen=True):
    """What a container asks by count: whole GPUs or replicas that kube-scheduler gives out without gpushare."""

    container: str
    resource: str
    amount: int


class Quote(msgspec.Struct, frozen=True):
    """kube-scheduler's own words, and when it said them last."""

    message: str
    time: str | None


class Check(msgspec.Struct, frozen=True):
    """One check of a pod that fits and still waits."""

    ok: bool
    text: str


class Replicas(msgspec.Struct, frozen=True):
    """Of a template: how many are asked for, and how many would fit."""

    asked: int
    fit: int


class Otherwise(msgspec.Struct, frozen=True):
    """The answer if admission makes the other pod of it."""

    verdict: str
    code: str
    message: str


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """All there is to say about one pod. It is built once, when all the evidence is there."""

    version: int
    verdict: str  # one of VERDICTS
    owner: str  # one of OWNERS: whose answer it is
    code: str
    message: str
    detail: str
    pod: PodView
    request: RequestView | None
    nodes: list[NodeView]
    ways: list[Way]
    scheduler: Quote | None
    has: list[Spot] = []  # of a bound pod
    beside: list[Holder] = []  # who else is on those GPUs, the largest first
    uses: list[UseView] = []  # what it was measured to use there; empty: unknown, or too old
    sampled_at: str | None = None  # when that was
    checks: list[Check] = []
    kept: KeptView | None = None  # of a waiting pod
    before: list[str] = []  # pods whose turn comes first: what this one could use is kept for them
    without_gpu: int = 0  # nodes without a GPU; they are not among `nodes`
    asks: list[AskView] = []  # of a pod that asks by count, like the next
    by_memory: int = 0  # nodes that share their GPUs by memory; they are not among `nodes`
    kind: str | None = None  # of a template in a file, like the next
    replicas: Replicas | None = None
    admission: str | None = None  # of a pod in a file that asks for GPU memory: one of ADMISSIONS
    otherwise: Otherwise | None = None  # if admission is unknown: the answer for the other pod, which is no worse
    policy: PolicyView | None = None  # of a pod that waits, like the next
    scores: list[NodeScore] = []  # of the best nodes, if the policy gives points
