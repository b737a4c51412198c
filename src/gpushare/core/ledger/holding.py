"""What one pod holds on one node, what it held there before, and what is kept for it.

Plain data with a few questions about itself. Only the `ledger` makes and changes it.
"""

from enum import Enum

from gpushare.core.annotations import kept_gpus, pod_gpus
from gpushare.core.facts import names, units
from gpushare.core.facts import request as requests
from gpushare.core.facts.model import Charges, Data, NodeFacts, Places, PodFacts, Request, Share, Unit
from gpushare.core.placement import gpu_choice

ASSUME_SECONDS = 30.0
SLOW_ASSUME_SECONDS = 900.0  # while volumes are bound: kube-scheduler gives them 600 s
EVERY_GPU_WHOLLY = 1 << 50  # units; more than any GPU has


class State(Enum):
    """See the diagram in `ledger`."""

    ASSUMED = "assumed"  # we expect the pod to be bound there
    RESERVED = "reserved"  # its binding is being written
    BOUND = "bound"


class Holding:
    """One pod on one node. `charges` is None if it is unlocated: nobody knows on which GPU it is."""

    __slots__ = (
        "charges", "decided_on", "node", "places", "pod", "seen", "since", "splits", "state", "unlocated", "until",
        "waits",
    )  # fmt: skip

    def __init__(
        self, pod: PodFacts, node: str, state: State, charges: Charges | None, facts: NodeFacts | None
    ) -> None:
        self.pod = pod
        self.node = node
        self.state = state
        self.charges = charges
        self.decided_on = facts if state is not State.BOUND else None  # the node when we decided
        self.places: Places = ()  # its GPUs among those of that node, while it is not bound
        self.unlocated = 0 if charges is not None else self.on_every_gpu(facts)
        self.waits = waits_for_kubelet(pod)
        self.splits = self.waits and any(s.gpus > 1 and s.units for s in shares(pod))
        self.since = self.until = 0.0
        self.seen = False  # the API server has shown it bound

    @property
    def keys(self) -> kept_gpus.Keys:
        """How its GPUs are found again if indices shift. None while it is bound: its annotations say which it has."""
        gpus = self.decided_on.gpus if self.decided_on is not None else ()
        return tuple([tuple([gpus[gpu].key for gpu in chosen]) for chosen in self.places]) if gpus else ()

    def is_like(self, other: "Holding") -> bool:
        """Whether another, of the same pod on the same node, takes the same from everybody."""
        old, new = self.pod, other.pod
        return (
            self.charges is not None
            and self.charges == other.charges
            and self.waits == other.waits
            and shares(old) == shares(new)
            and (old.cpu, old.memory) == (new.cpu, new.memory)
        )

    def on_every_gpu(self, facts: NodeFacts | None) -> int:
        """What it counts on every GPU while it is unlocated."""
        if self.pod.spec_unknown:
            return EVERY_GPU_WHOLLY
        return units.converted(self.pod.spec_units, self.unit_on(facts), facts.unit) if facts else self.pod.spec_units

    def unit_on(self, facts: NodeFacts) -> Unit:
        """The unit of its amounts. Before it is bound we know it, because the decision was ours."""
        if self.state is State.BOUND or self.decided_on is None:
            return pod_gpus.counted_in(self.pod, facts)
        return self.decided_on.unit

    def as_bound(self) -> PodFacts | None:
        """The pod with what its binding writes; None unless a binding was decided."""
        if self.decided_on is None or not isinstance(self.pod.request, Request):
            return None
        notes = pod_gpus.write(self.pod.request, self.decided_on, self.places, extender="", nanoseconds=0)
        return requests.bound(self.pod, self.node, notes)


class OldPlace(Data, frozen=True):
    """What a pod held before it moved, beyond what it holds now. It is still charged for a while."""

    held: tuple[tuple[str, int, int], ...]  # units and slots by key of the GPU: the node may change meanwhile
    until: float


class Kept(Data, frozen=True):
    """GPUs of a node that are kept for a pod which has waited too long: what comes free there is for that pod."""

    pod: PodFacts
    node: str
    keys: kept_gpus.Keys  # the node may change meanwhile
    since: float  # since when the pod waits: if two pods are kept the same GPU, the older goes first

    def charges(self, facts: NodeFacts) -> Charges | None:
        """What the pod is to get on each GPU; None if the node lacks one of them."""
        places = places_of(self.keys, facts)
        if not isinstance(self.pod.request, Request) or places is None:
            return None
        return gpu_choice.charges(self.pod.request.shares, facts, places)


def places_of(keys: kept_gpus.Keys, facts: NodeFacts) -> Places | None:
    """Where the GPUs with these keys are in the node's list; None if the node lacks one of them."""
    position = {gpu.key: i for i, gpu in enumerate(facts.gpus)}
    if any(key not in position for chosen in keys for key in chosen):
        return None
    return tuple([tuple([position[key] for key in chosen]) for chosen in keys])


def assume_seconds(pod: PodFacts, node: str) -> float:
    """How long an assumption lasts: volumes may take minutes between the decision and the binding."""
    return SLOW_ASSUME_SECONDS if pod.slow_volumes or pod.nominated == node else ASSUME_SECONDS


def waits_for_kubelet(pod: PodFacts) -> bool:
    """Whether its containers have not got their GPUs from a device plugin yet."""
    return not pod.running and not (pod.node and pod.annotation(names.ALIYUN_ASSIGNED) == "true")


def shares(pod: PodFacts) -> tuple[Share, ...]:
    return pod.request.shares if isinstance(pod.request, Request) else ()
