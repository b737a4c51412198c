"""One node as everybody may read it: what it offers, who holds what there, and what is free for whom.

`node_record` adds what changes it, for the ledger alone.
"""

from collections.abc import Callable, Collection, Iterator, Sequence, ValuesView

from gpushare.core.facts import policies
from gpushare.core.facts.model import Charge, Charges, NodeFacts, Pin, PodFacts, Refusal, Request
from gpushare.core.facts.packing.model import View
from gpushare.core.facts.scoring import adjusted
from gpushare.core.facts.scoring import order as orders
from gpushare.core.facts.scoring.adjusted import Scoring
from gpushare.core.facts.scoring.load import GpuLoad
from gpushare.core.facts.scoring.order import Order
from gpushare.core.ledger import loads
from gpushare.core.ledger.cool_down import CoolDowns
from gpushare.core.ledger.holding import Holding, Kept, OldPlace
from gpushare.core.ledger.loads import Measured
from gpushare.core.ledger.starting import Starting, init_amounts
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import STILL_STARTING
from gpushare.core.placement.room import Room, Taken

NOMINATION_LOOKS = 1_000  # GPUs looked at to find out where a nominated pod will go; a harder one is kept nothing

Asker = tuple[int, str, bool]  # priority; uid, if something is promised to it; whether what is kept counts


class NodeState:
    """Exists as long as the node offers something or a pod holds something there. `room` is what is free,
    promises aside; `facts` and `room` are None while the node shares no GPU."""

    __slots__ = (
        "_cool_downs",
        "_holdings",
        "_kept",
        "_loads",
        "_nominated",
        "_old_places",
        "_orders",
        "_rooms",
        "_split",
        "_starting",
        "_taken_by_asker",
        "_unlocated",
        "_used",
        "facts",
        "known_view",
        "measured",
        "name",
        "promised",
        "room",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: NodeFacts | None = None
        self.room: Room | None = None
        self.measured: Measured | None = None  # what its GPUs do, if that is known and not too old
        self.promised = False  # something is kept or nominated here: what is free depends on who asks
        self._holdings: dict[str, Holding] = {}
        self._old_places: dict[str, OldPlace] = {}
        self._nominated: dict[str, PodFacts] = {}
        self._kept: dict[str, Kept] = {}
        self._cool_downs = CoolDowns()
        self._used = Taken.nothing(0)  # by located holdings and old places
        self._unlocated = 0  # units of unlocated holdings, counted on every GPU
        self._split = 0  # unassigned shares over several GPUs: kubelet cannot tell them from others of the same amount
        self._taken_by_asker: dict[Asker, Taken] = {}  # until something changes
        self._rooms: dict[Asker, Room] = {}  # what that leaves
        self._starting: Starting | None = None
        self._loads: tuple[GpuLoad, ...] | None = None  # until something changes, like the next
        self._orders: dict[tuple[str, bool], tuple[Scoring, Order]] = {}  # by policy, and whether one GPU is asked for
        self.known_view: View | None = None  # until something changes; None while it depends on who asks

    def holding(self, uid: str) -> Holding | None:
        return self._holdings.get(uid)

    def holdings(self) -> ValuesView[Holding]:
        return self._holdings.values()

    def kept(self) -> ValuesView[Kept]:
        return self._kept.values()

    @property
    def used(self) -> Sequence[int]:
        """By GPU: units charged there, those of unlocated pods aside."""
        return self._used.units

    @property
    def used_slots(self) -> Sequence[int]:
        """By GPU: MPS slots charged there. An unlocated pod that has some fills every GPU."""
        return self._used.slots

    @property
    def unlocated(self) -> int:
        """Units of unlocated pods: they count on every GPU."""
        return self._unlocated

    @property
    def depends_on_pod(self) -> bool:
        """Whether the answer to a request depends on more than the room: on the pod, or on what happened here."""
        return bool(self.promised or self._split or self._cool_downs.is_any_active)

    def is_cooling_down(self, request: Request) -> bool:
        """Whether kubelet refused such a pod here a moment ago."""
        return self._cool_downs.is_cooling_down(request)

    def effective(self, without: Collection[str] = ()) -> Taken:
        """What is taken on each GPU, as if the pods `without` were gone."""
        gone = [self._holdings[uid] for uid in without]
        unlocated = self._unlocated - sum(holding.unlocated for holding in gone)
        used = Taken([taken + unlocated for taken in self._used.units], list(self._used.slots))
        for holding in gone:
            used.add(holding.charges or (), -1)
        return used

    def loads(self) -> tuple[GpuLoad, ...]:
        """What is known of each GPU when points are given."""
        if self._loads is None:
            facts = self.facts
            self._loads = loads.loads(facts, self._holdings.values(), self.measured) if facts is not None else ()
        return self._loads

    def has_order(self, policy: str, scoring: Scoring, *, single: bool) -> bool:
        """Whether it is worked out already."""
        known = self._orders.get((policy, single))
        return known is not None and known[0] is scoring

    def order(self, policy: str, scoring: Scoring, *, single: bool) -> Order | None:
        """The points of each GPU; None if the policy gives none. `single`: for a pod that asks for one GPU."""
        score = policies.POLICIES[policy].score
        if score is None or self.facts is None:
            return None
        if self.has_order(policy, scoring, single=single):
            return self._orders[policy, single][1]
        points = tuple([adjusted.points(score, load, scoring, single=single) for load in self.loads()])
        percent = scoring.settings.nvlink_percent
        made = Order(points, orders.links(self.facts.gpus) if percent and not single else (), percent)
        self._orders[policy, single] = scoring, made
        return made

    def view(self, pod: PodFacts, left: Callable[[str], tuple[int, int]]) -> View | None:
        """What packing policies see of the node for this pod; `left`: CPU and memory of a node, in thousandths and
        MiB."""
        room = self.room_for(pod)
        if room is None:
            return None
        free = [units if gpu.healthy else 0 for gpu, units in zip(room.facts.gpus, room.free, strict=True)]
        # A GPU that does not say its size has nothing free. Policies divide by what it has.
        totals, models = [gpu.total or 1 for gpu in room.facts.gpus], [gpu.model for gpu in room.facts.gpus]
        held = frozenset([_gpus_held(holding.charges or (), totals) for holding in self._holdings.values()])
        return View(free, totals, models, *left(self.name), empty=room.empty, held=held)

    def room_for(self, pod: PodFacts, gone: Collection[str] = (), *, kept: bool = True) -> Room | None:
        """What is free for this pod once the pods `gone` are: without what is nominated to others of at least its
        priority and, unless `kept` is False, without what is kept for others of at least its priority."""
        if self.facts is None or not (self.promised or gone):
            return self.room
        if gone:
            taken = self._taken(pod, self.facts, gone, kept=kept)
            return Room.of(self.facts, taken.units, taken.slots)
        asker = self._asker(pod, kept)
        room = self._rooms.get(asker)
        if room is None:
            taken = self.taken_for(pod, self.facts, kept=kept)
            room = self._rooms[asker] = Room.of(self.facts, taken.units, taken.slots)
        return room

    def imagined(self, facts: NodeFacts) -> "NodeState":
        """A copy of this node with the same GPUs in another state: to ask what would be free then."""
        other = self._copy()
        other.facts, other._taken_by_asker, other._rooms = facts, {}, {}
        other._loads, other._orders, other.known_view = None, {}, None
        taken = other.effective()
        other.room = Room.of(facts, taken.units, taken.slots)
        return other

    def without_promises_to(self, uid: str) -> "NodeState":
        """The same node if nothing were nominated to or kept for this pod: what a pod in its place would find."""
        if uid not in self._nominated and uid not in self._kept:
            return self
        other = self._copy()
        other._nominated = {key: pod for key, pod in self._nominated.items() if key != uid}
        other._kept = {key: kept for key, kept in self._kept.items() if key != uid}
        other.promised, other._taken_by_asker, other._rooms = bool(other._nominated or other._kept), {}, {}
        return other

    def _copy(self) -> "NodeState":
        """Shares all that this one consists of. Not by the module copy: commands must start at once."""
        other = NodeState(self.name)
        for name in NodeState.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def taken_for(self, pod: PodFacts, facts: NodeFacts, *, kept: bool = True) -> Taken:
        """What of each GPU this pod cannot have now: what `room_for` is made of."""
        asker = self._asker(pod, kept)
        taken = self._taken_by_asker.get(asker)
        if taken is None:
            taken = self._taken_by_asker[asker] = self._taken(pod, facts, (), kept=kept)
        return taken

    def charges_of(self, kept: Kept) -> Charges:
        return (kept.charges(self.facts) if self.facts is not None else None) or ()

    def still_starting(self, request: Request, uid: str, budget: Budget) -> Refusal | None:
        """The refusal of a pod that has to wait until another has started, see `starting`."""
        if self.facts is None or self.facts.pin is not Pin.PLUGIN:
            return None
        if not self._split and not init_amounts(request) and all(share.gpus == 1 for share in request.shares):
            return None
        if self._starting is None:  # worked out once after each change: a node may have thousands of such containers
            self._starting = Starting(self._holdings.values(), budget)
        budget.left -= len(request.shares)
        return STILL_STARTING if self._starting.could_be_confused(request, uid) else None

    # What is promised to others

    def _asker(self, pod: PodFacts, kept: bool) -> Asker:
        """For pods with the same asker the same units are free."""
        return pod.priority, pod.uid if pod.uid in self._nominated or pod.uid in self._kept else "", kept

    def _taken(self, pod: PodFacts, facts: NodeFacts, gone: Collection[str], *, kept: bool) -> Taken:
        """The most important are served first. Among equals what is kept comes before nominations, because its GPUs
        are fixed."""
        used = self.effective(gone)
        others = [k for k in self._kept.values() if kept and self._counts(k.pod, pod)]
        ahead = self._nominated_before(pod)
        for priority in sorted({p.priority for p in ahead} | {k.pod.priority for k in others}, reverse=True):
            used.add(self._kept_from(pod, [k for k in others if k.pod.priority == priority]))
            for other in ahead:
                if other.priority == priority:
                    used.add(self._nomination(facts, other, used, gone))
        return used

    def _counts(self, other: PodFacts, pod: PodFacts) -> bool:
        """Whether what is promised to another pod is taken from this one. A pod that holds something here already
        needs no promise any more."""
        return other.priority >= pod.priority and other.uid != pod.uid and other.uid not in self._holdings

    def _nominated_before(self, pod: PodFacts) -> list[PodFacts]:
        """Of the pods nominated to this node the older go first."""
        own = self._nominated.get(pod.uid)
        others = self._nominated.values()
        ahead = [p for p in others if self._counts(p, pod) and (own is None or _turn(p) < _turn(own))]
        return sorted(ahead, key=_turn)

    def _kept_from(self, pod: PodFacts, others: Sequence[Kept]) -> Iterator[Charge]:
        """What is kept for others, by GPU. If two pods wait for the same GPU, the younger takes nothing from the
        older."""
        own = self._kept.get(pod.uid)
        waits = {charge.gpu for charge in self.charges_of(own)} if own is not None else set()
        for other in others:
            first = own is not None and (own.since, own.pod.uid) < (other.since, other.pod.uid)
            for charge in self.charges_of(other):
                if not (first and charge.gpu in waits):
                    yield charge

    def _nomination(self, facts: NodeFacts, pod: PodFacts, used: Taken, gone: Collection[str]) -> Charges:
        """Which GPUs a nominated pod will get: where pods that end leave room, else where it could evict."""
        if not isinstance(pod.request, Request):
            return ()
        ending = {uid for uid, holding in self._holdings.items() if holding.pod.terminating}.union(gone)
        lower = {uid for uid, holding in self._holdings.items() if holding.pod.priority < pod.priority}
        now = self.effective(gone)
        for without in (ending, ending | lower):
            after = self.effective(without)
            units = [max(taken - (a - b), 0) for taken, a, b in zip(used.units, now.units, after.units, strict=True)]
            slots = [max(taken - (a - b), 0) for taken, a, b in zip(used.slots, now.slots, after.slots, strict=True)]
            later = Room.of(facts, units, slots)
            places = gpu_choice.plan(pod.request, later, policies.DEFAULT, Budget(NOMINATION_LOOKS))
            if places is not None:
                return gpu_choice.charges(pod.request.shares, facts, places)
        return ()


def _gpus_held(charges: Charges, totals: Sequence[int]) -> int:
    """How many GPUs a pod has; 0: a part of one."""
    return 0 if len(charges) == 1 and charges[0].units < totals[charges[0].gpu] else len(charges)


def _turn(pod: PodFacts) -> tuple[int, str, str]:
    """Whose turn it is among pods that wait for the same: the most important, then the oldest."""
    return (-pod.priority, pod.created, pod.uid)
