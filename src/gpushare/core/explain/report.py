"""What `explain` answers with: one object, for people and for programs.

Data only. The extender's `/explain` sends it, `gpushare why` shows it or prints it as it is. Keys are only ever added;
what has a default is left out where there is nothing to say.
"""

import msgspec

VERSION = 1
VERDICTS = ("runs", "fits", "refused", "never", "invalid")  # from good to bad
GPUSHARE, SCHEDULER, KUBELET, API_SERVER = OWNERS = ("gpushare", "kube-scheduler", "kubelet", "kube-apiserver")
# Codes beside those of the refusals.
NO_REQUEST, FITS, BOUND, ENDED, KEPT_OFF = "NoRequest", "Fits", "Bound", "Ended", "KeptOff"
NOT_ADMITTED = "NotAdmitted"
# Codes of refusals for want of room: the node may be used, but its GPUs have too little.
ROOM = ("NoSingleGpu", "NoHealthyGpu", "NoGpusEach", "NoGpusFor", "NoWholeGpu", "NoInitGpu", "KeptForOther")
# How it is known what admission makes of a pod that does not exist yet: the API server was asked; gpushare's policy was
# read; all nodes pin one way; it is not known.
DRY_RUN, READ, BY_NODES, UNKNOWN = ADMISSIONS = ("dry-run", "read", "nodes", "unknown")


class Said(msgspec.Struct, omit_defaults=True):
    """A "no" of one node. `detail`: what only people want to know."""

    code: str
    message: str
    detail: str = ""


class GpuView(msgspec.Struct, omit_defaults=True):
    index: int
    total: int
    free: int
    short: int | None
    healthy: bool
    pods: int
    why: str = ""  # it is not healthy


class NodeView(msgspec.Struct, omit_defaults=True):
    """What a node says. `fits`: to gpushare; `scheduler`: what keeps kube-scheduler from sending the pod there."""

    name: str
    fits: bool
    unit: str | None
    gpushare: Said | None
    scheduler: Said | None
    gpus: list[GpuView]  # the one with the most free first
    lower: int = 0  # pods there of a lower priority than this one


class Holder(msgspec.Struct, omit_defaults=True):
    """A pod that holds GPU memory; `gpu` where it matters which."""

    pod: str
    units: int
    priority: int
    gpu: int | None = None


class Spot(msgspec.Struct, omit_defaults=True):
    """What a pod has, or would get, on one GPU, and what is free there now."""

    gpu: int
    units: int
    free: int | None  # None: not ours to know, like the next
    total: int | None
    containers: list[str] = []  # that see this GPU


class Way(msgspec.Struct, omit_defaults=True):
    """Something that would help: `way` is shrink, end, evict, split, heal, tolerate or wait."""

    way: str
    node: str | None = None
    gpu: int | None = None  # heal without it: all GPUs of the node that are sick
    units: int | None = None
    gpus: int | None = None
    pods: list[str] | None = None  # end: any one of these; evict: all of them
    count: int | None = None  # of those pods, if more than are named
    holders: list[Holder] | None = None  # the same pods, the cheapest first
    spots: list[Spot] | None = None  # wait: where it would go
    taint: str | None = None
    why: str | None = None  # heal: what is wrong with the GPU


class KeptView(msgspec.Struct):
    """GPUs that are kept for a pod which has waited long, and how much must still come free there."""

    node: str
    gpus: list[int]
    short: int
    unit: str


class PodView(msgspec.Struct, omit_defaults=True):
    namespace: str
    name: str
    phase: str
    node: str | None
    priority: int
    preempts: bool = True  # may have others of lower priority evicted
    deleting: bool = False


class ShareView(msgspec.Struct):
    container: str
    units: int
    gpus: int
    whole: bool


class RequestView(msgspec.Struct):
    unit: str | None
    shares: list[ShareView]


class Quote(msgspec.Struct):
    """kube-scheduler's own words, and when it said them last."""

    message: str
    time: str | None


class Check(msgspec.Struct):
    """One thing looked at for a pod that fits and yet waits."""

    ok: bool
    text: str


class Replicas(msgspec.Struct):
    """Of a template: how many are asked for, and how many would fit."""

    asked: int
    fit: int


class Otherwise(msgspec.Struct):
    """The answer for the pod that it may become as well."""

    verdict: str
    code: str
    message: str


class Explanation(msgspec.Struct, omit_defaults=True):
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
    checks: list[Check] = []
    kept: KeptView | None = None  # of a waiting pod
    before: list[str] = []  # pods whose turn it is, for which what this one could use is kept
    without_gpu: int = 0  # nodes that have no GPU at all, and are not among `nodes`
    kind: str | None = None  # of a template in a file, like the next
    replicas: Replicas | None = None
    admission: str | None = None  # of a pod in a file that asks for GPU memory: one of ADMISSIONS
    otherwise: Otherwise | None = None  # if that is unknown: the answer, no worse than this one, for the other pod
