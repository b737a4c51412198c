"""What the ledger is made of: a pod's holding, and a node with all that is held, pledged and resting there.

Data with a few questions about itself; only the `ledger` changes it.
"""

from collections.abc import Collection, Sequence
from enum import Enum

from gpushare.core import choose, names
from gpushare.core.choose import Room
from gpushare.core.codec import Charges
from gpushare.core.fit import LIKE_UNDER_WAY
from gpushare.core.model import Data, NodeFacts, Pin, PodFacts, Refusal, Request, Shape, Share

EVERY_GPU_WHOLLY = 1 << 50  # units; more than any GPU has


class State(Enum):
    HELD = "held"
    RESERVED = "reserved"
    BOUND = "bound"


class Holding:
    """One pod on one node. `charges` None: it holds something there, but nobody says on which GPU."""

    __slots__ = ("charges", "keys", "node", "pod", "seen", "since", "splits", "state", "until", "vague")

    def __init__(self, pod: PodFacts, node: str, state: State, charges: Charges | None) -> None:
        self.pod = pod
        self.node = node
        self.state = state
        self.charges = charges
        self.keys: tuple[tuple[str, ...], ...] = ()  # GPUs by share, by uuid: how it is found again if indices shift
        self.vague = 0 if charges is not None else units_unknown(pod)
        self.splits = waits_for_kubelet(pod) and any(s.gpus > 1 and s.units for s in _shares(pod))
        self.since = self.until = 0.0
        self.seen = False  # the API server has shown it bound


class Ghost(Data, frozen=True):
    """What a pod held before it moved, beyond what it holds now: still charged for a while."""

    charges: tuple[tuple[str, int], ...]  # by key of the GPU: the node may change meanwhile
    until: float


class Rest:
    """A node that refused a shape is left alone for a while, longer each time."""

    __slots__ = ("active", "length", "until")

    def __init__(self, until: float, length: float) -> None:
        self.until = until
        self.length = length
        self.active = True


class NodeState:
    """One node: what it offers, who holds what there. Exists as long as either is known."""

    __slots__ = ("facts", "ghosts", "holdings", "name", "pledges", "rests", "room", "split", "used", "vague")

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: NodeFacts | None = None
        self.holdings: dict[str, Holding] = {}
        self.ghosts: dict[str, Ghost] = {}
        self.pledges: dict[str, PodFacts] = {}
        self.rests: dict[Shape, Rest] = {}
        self.used: list[int] = []  # by GPU: units of holdings and ghosts that say where
        self.vague = 0  # units of those that do not, counted on every GPU
        self.split = 0  # unassigned shares over several GPUs: kubelet cannot tell them from others of the same amount
        self.room: Room | None = None

    def effective(self, without: Collection[str] = ()) -> list[int]:
        """Units taken on each GPU, as if the pods `without` were gone."""
        used = [taken + self.vague for taken in self.used]
        for uid in without:
            holding = self.holdings[uid]
            if holding.charges is None:
                used = [taken - holding.vague for taken in used]
            for gpu, amount in holding.charges or ():
                used[gpu] -= amount
        return used

    def room_for(self, pod: PodFacts, gone: Collection[str] = ()) -> Room | None:
        """What is free for this pod once the pods `gone` are: less what is pledged to others of at least its priority.
        Who holds something here already needs no pledge; of those nominated to this node the older go first."""
        pledges = [p for p in self.pledges.values() if p.priority >= pod.priority and p.uid not in self.holdings]
        mine = self.pledges.get(pod.uid)
        ahead = [p for p in pledges if p.uid != pod.uid and (mine is None or _turn(p) < _turn(mine))]
        if self.facts is None or not (ahead or gone):
            return self.room
        used = self.effective(gone)
        for other in sorted(ahead, key=_turn):
            for gpu, amount in self._pledged(self.facts, other, used, gone):
                used[gpu] += amount
        return Room.of(self.facts, used)

    def _pledged(self, facts: NodeFacts, pod: PodFacts, used: Sequence[int], gone: Collection[str]) -> Charges:
        """Which GPUs a nominated pod will get: where those that end leave room, else where it could evict."""
        if not isinstance(pod.claim, Request):
            return ()
        ending = {uid for uid, holding in self.holdings.items() if holding.pod.terminating}.union(gone)
        lower = {uid for uid, holding in self.holdings.items() if holding.pod.priority < pod.priority}
        now = self.effective(gone)
        for without in (ending, ending | lower):
            after = self.effective(without)
            later = [max(taken - (a - b), 0) for taken, a, b in zip(used, now, after, strict=True)]
            places = choose.plan(pod.claim, Room.of(facts, later), choose.BINPACK)
            if places is not None:
                return choose.charges(pod.claim.shares, facts.gpus, places)
        return ()

    def like_under_way(self, request: Request, uid: str) -> Refusal | None:
        """On plugin nodes kubelet asks by amount only: the same amount over another number of GPUs must wait."""
        if self.facts is None or self.facts.pin is not Pin.PLUGIN:
            return None
        if not self.split and all(share.gpus == 1 for share in request.shares):
            return None
        wanted = {(share.units, share.gpus) for share in request.shares if share.units}
        for holding in self.holdings.values():
            if holding.pod.uid != uid and waits_for_kubelet(holding.pod):
                for theirs in _shares(holding.pod):
                    if any(units == theirs.units and gpus != theirs.gpus for units, gpus in wanted):
                        return LIKE_UNDER_WAY
        return None


def _turn(pod: PodFacts) -> tuple[int, str, str]:
    """Whose turn it is among pods that wait for the same: the most important, then the oldest."""
    return (-pod.priority, pod.created, pod.uid)


def units_unknown(pod: PodFacts) -> int:
    """What a pod counts on every GPU while nobody says which it has."""
    return EVERY_GPU_WHOLLY if pod.spec_whole else pod.spec_units


def waits_for_kubelet(pod: PodFacts) -> bool:
    """Its containers have not got their GPUs from a device plugin yet."""
    return not pod.running and not (pod.node and pod.note(names.ALIYUN_ASSIGNED) == "true")


def _shares(pod: PodFacts) -> tuple[Share, ...]:
    return pod.claim.shares if isinstance(pod.claim, Request) else ()
