"""What the ledger is made of: a pod's holding, and a node with all that is held, pledged and resting there.

Data with a few questions about itself; only the `ledger` changes it.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import Enum

from gpushare.core.annotations import pod_gpus
from gpushare.core.annotations.pod_gpus import Charges
from gpushare.core.facts import names, policies, units
from gpushare.core.facts.model import Data, NodeFacts, Pin, PodFacts, Refusal, Request, Role, Share, Unit
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import LIKE_UNDER_WAY
from gpushare.core.placement.room import Room

EVERY_GPU_WHOLLY = 1 << 50  # units; more than any GPU has
MOVE_SECONDS = 10.0  # a moved pod counts on both GPUs: two patches of a swap do not arrive together
REST_SECONDS = (10.0, 300.0)  # first and longest rest of a node that refused a shape
PLEDGE_LOOKS = 1_000  # GPUs looked at to find out where a nominated pod will go; a harder one is pledged nothing
RECALL_SECONDS = 600.0  # after its end: a refusal within that time rests longer
MOST_RESTS = 1_000  # on one node; more would be a tenant's work, who has pods of all sizes refused

Shares = tuple[Pin | None, tuple[tuple[Role, int, int, bool], ...]]
"""A shape without its unit: on one node all that fit count in the node's."""


Asker = tuple[int, str, bool]  # priority; uid, if something is promised to it; whether what is kept counts


UnderWay = tuple[dict[int, dict[int, set[str]]], dict[tuple[bool, int, int], set[str]]]


class State(Enum):
    HELD = "held"
    RESERVED = "reserved"
    BOUND = "bound"


class Holding:
    """One pod on one node. `charges` None: it holds something there, but nobody says on which GPU."""

    __slots__ = ("charges", "keys", "node", "pod", "seen", "since", "splits", "state", "unit", "unlocated", "until")

    def __init__(
        self, pod: PodFacts, node: str, state: State, charges: Charges | None, facts: NodeFacts | None
    ) -> None:
        self.pod = pod
        self.node = node
        self.state = state
        self.charges = charges
        self.unit = facts.unit if facts is not None else None  # that the node counted in when this was decided
        self.keys: tuple[tuple[str, ...], ...] = ()  # GPUs by share, by uuid: how it is found again if indices shift
        self.unlocated = 0 if charges is not None else self.somewhere(facts)
        self.splits = waits_for_kubelet(pod) and any(s.gpus > 1 and s.units for s in _shares(pod))
        self.since = self.until = 0.0
        self.seen = False  # the API server has shown it bound

    def somewhere(self, facts: NodeFacts | None) -> int:
        """What it counts on every GPU while nobody says which it has."""
        if self.pod.spec_whole:
            return EVERY_GPU_WHOLLY
        return units.converted(self.pod.spec_units, self.unit_on(facts), facts.unit) if facts else self.pod.spec_units

    def unit_on(self, facts: NodeFacts) -> Unit:
        """The unit its amounts are in. Of what is not bound yet we know it: the decision was ours."""
        return pod_gpus.counted_in(self.pod, facts) if self.state is State.BOUND else self.unit or facts.unit


class OldPlace(Data, frozen=True):
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


class Kept(Data, frozen=True):
    """GPUs of a node that are kept for a pod which has waited too long: what comes free there is for it."""

    pod: PodFacts
    node: str
    keys: tuple[tuple[str, ...], ...]  # GPUs by share, by uuid: the node may change meanwhile
    since: float  # how long it waits: of two that are kept the same GPU, the older goes first

    def charges(self, facts: NodeFacts) -> Charges | None:
        """What it is to get on each GPU; None if the node lacks one of them."""
        position = {gpu.key: i for i, gpu in enumerate(facts.gpus)}
        if not isinstance(self.pod.request, Request) or any(key not in position for keys in self.keys for key in keys):
            return None
        places = tuple([tuple([position[key] for key in keys]) for keys in self.keys])
        return gpu_choice.charges(self.pod.request.shares, facts.gpus, places)


class NodeState:
    """One node: what it offers, who holds what there. Exists as long as either is known."""

    __slots__ = (
        "_known",
        "_rooms",
        "_under_way",
        "facts",
        "holdings",
        "kept",
        "name",
        "old_places",
        "pledges",
        "rests",
        "room",
        "split",
        "unlocated",
        "used",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: NodeFacts | None = None
        self.holdings: dict[str, Holding] = {}
        self.old_places: dict[str, OldPlace] = {}
        self.pledges: dict[str, PodFacts] = {}
        self.kept: dict[str, Kept] = {}
        self.rests: dict[Shares, Rest] = {}
        self.used: list[int] = []  # by GPU: units of holdings and old places that say where
        self.unlocated = 0  # units of those that do not, counted on every GPU
        self.split = 0  # unassigned shares over several GPUs: kubelet cannot tell them from others of the same amount
        self.room: Room | None = None
        self._known: dict[Asker, Sequence[int]] = {}  # what is taken from whom, until something changes
        self._rooms: dict[Asker, Room] = {}  # the same as what is left
        self._under_way: UnderWay | None = None

    def renew(self) -> None:
        """Something changed: work out again what is free."""
        self.room = Room.of(self.facts, self.effective()) if self.facts is not None else None
        self._known.clear()
        self._rooms.clear()
        self._under_way = None

    @property
    def is_resting(self) -> bool:
        return any(rest.active for rest in self.rests.values())

    def begin_anew(self, facts: NodeFacts | None) -> None:
        """The node changed: nobody is charged but for what moved pods left, and what it refused it may take now."""
        if self.facts is None or facts is None or _published(self.facts) != _published(facts):
            self.rests.clear()
        self.facts, self.used = facts, [0] * len(facts.gpus) if facts else []
        self.unlocated = self.split = 0
        self.holdings.clear()
        for old_place in self.old_places.values():
            self._charge_old_place(old_place, 1)

    def charge(self, holding: Holding, sign: int) -> None:
        self.unlocated += sign * holding.unlocated
        self.split += sign * holding.splits
        for gpu, amount in holding.charges or ():
            self.used[gpu] += sign * amount

    def keep_old_place(self, old: Holding, new: Holding, now: float) -> bool:
        """If a pod moved, charge what it had before for a while as well."""
        if self.facts is None or old.charges is None or new.charges is None or old.charges == new.charges:
            return False
        keys = [gpu.key for gpu in self.facts.gpus]
        left = {keys[gpu]: amount for gpu, amount in old.charges}
        before = self.drop_old_place(new.pod.uid)
        for key, amount in before.charges if before else ():
            left[key] = left.get(key, 0) + amount
        for gpu, amount in new.charges:
            left[keys[gpu]] = left.get(keys[gpu], 0) - amount
        old_place = OldPlace(tuple([(key, amount) for key, amount in left.items() if amount > 0]), now + MOVE_SECONDS)
        self.old_places[new.pod.uid] = old_place
        self._charge_old_place(old_place, 1)
        return True

    def drop_old_place(self, uid: str) -> OldPlace | None:
        """What a pod has left is charged no longer."""
        old_place = self.old_places.pop(uid, None)
        if old_place is not None:
            self._charge_old_place(old_place, -1)
        return old_place

    def _charge_old_place(self, old_place: OldPlace, sign: int) -> None:
        position = {gpu.key: i for i, gpu in enumerate(self.facts.gpus)} if self.facts else {}
        for key, amount in old_place.charges:
            if key in position:
                self.used[position[key]] += sign * amount

    def rest(self, request: Request, now: float) -> None:
        """kubelet refused such a pod. While the node rests, only those sent before are refused: that is one refusal."""
        length, longest = REST_SECONDS
        before = self.rests.pop(_shape(request), None)
        if before is not None:
            length = before.length if before.active else min(before.length * 2, longest)
        while len(self.rests) >= MOST_RESTS:
            del self.rests[next(iter(self.rests))]  # the oldest
        self.rests[_shape(request)] = Rest(now + length, length)

    def rests_from(self, request: Request) -> bool:
        rest = self.rests.get(_shape(request)) if self.rests else None
        return rest is not None and rest.active

    def expire(self, now: float) -> bool:
        """End what ends by time, and say whether there was anything."""
        over = [uid for uid, old_place in self.old_places.items() if old_place.until <= now]
        for uid in over:
            self.drop_old_place(uid)
        ended = [rest for rest in self.rests.values() if rest.active and rest.until <= now]
        for rest in ended:
            rest.active = False  # remembered for a while, so that the next refusal rests longer
        for shape in [shape for shape, rest in self.rests.items() if rest.until + RECALL_SECONDS <= now]:
            del self.rests[shape]
        return bool(over or ended)

    def is_news(self, before: PodFacts | None, now: PodFacts) -> bool:
        """Whether what is seen of a pod ends a refusal that was not for want of room: its like was refused here and
        it has started, or kubelet cannot mistake it for another any more."""
        proven = False
        if isinstance(now.request, Request) and now.running and not (before is not None and before.running):
            proven = self.rests.pop(_shape(now.request), None) is not None
        if before is None or self.facts is None or self.facts.pin is not Pin.PLUGIN:
            return proven
        told_apart = not waits_for_kubelet(now) or before.request != now.request
        return proven or (waits_for_kubelet(before) and told_apart)

    def effective(self, without: Collection[str] = ()) -> list[int]:
        """Units taken on each GPU, as if the pods `without` were gone."""
        used = [taken + self.unlocated for taken in self.used]
        for uid in without:
            holding = self.holdings[uid]
            if holding.charges is None:
                used = [taken - holding.unlocated for taken in used]
            for gpu, amount in holding.charges or ():
                used[gpu] -= amount
        return used

    def room_for(self, pod: PodFacts, gone: Collection[str] = (), *, kept: bool = True) -> Room | None:
        """What is free for this pod once the pods `gone` are: less what is pledged to others of at least its priority
        and, unless `kept` is False, what is kept for others of at least its priority."""
        if self.facts is None or not (self.pledges or self.kept or gone):
            return self.room
        if gone:
            return Room.of(self.facts, self._taken(pod, self.facts, gone, kept=kept))
        asker = self._asker(pod, kept)
        room = self._rooms.get(asker)
        if room is None:
            room = self._rooms[asker] = Room.of(self.facts, self.taken_for(pod, self.facts, kept=kept))
        return room

    def taken_for(self, pod: PodFacts, facts: NodeFacts, *, kept: bool = True) -> Sequence[int]:
        """Units of each GPU that this pod cannot have now: what `room_for` is made of."""
        asker = self._asker(pod, kept)
        taken = self._known.get(asker)
        if taken is None:
            taken = self._known[asker] = self._taken(pod, facts, (), kept=kept)
        return taken

    def _asker(self, pod: PodFacts, kept: bool) -> Asker:
        """Those for whom the same is free."""
        return pod.priority, pod.uid if pod.uid in self.pledges or pod.uid in self.kept else "", kept

    def _taken(self, pod: PodFacts, facts: NodeFacts, gone: Collection[str], *, kept: bool) -> list[int]:
        """The most important are served first. Among equals what is kept comes before what is pledged, because its
        GPUs are fixed."""
        used = self.effective(gone)
        others = [k for k in self.kept.values() if kept and self._counts(k.pod, pod)]
        ahead = self._nominated_before(pod)
        for priority in sorted({p.priority for p in ahead} | {k.pod.priority for k in others}, reverse=True):
            for gpu, amount in self._kept_from(pod, [k for k in others if k.pod.priority == priority]):
                used[gpu] += amount
            for other in ahead:
                if other.priority == priority:
                    for gpu, amount in self._pledged(facts, other, used, gone):
                        used[gpu] += amount
        return used

    def _counts(self, other: PodFacts, pod: PodFacts) -> bool:
        """Whether what is promised to another pod is taken from this one. Who holds something here already needs no
        promise any more."""
        return other.priority >= pod.priority and other.uid != pod.uid and other.uid not in self.holdings

    def _nominated_before(self, pod: PodFacts) -> list[PodFacts]:
        """Of those nominated to this node the older go first."""
        mine = self.pledges.get(pod.uid)
        others = [p for p in self.pledges.values() if self._counts(p, pod) and (mine is None or _turn(p) < _turn(mine))]
        return sorted(others, key=_turn)

    def _kept_from(self, pod: PodFacts, others: Sequence[Kept]) -> Iterator[tuple[int, int]]:
        """What is kept for others, by GPU. Of two that wait for the same GPU, the older need not mind the younger."""
        mine = self.kept.get(pod.uid)
        waits = {gpu for gpu, _ in self.charges_of(mine)} if mine is not None else set()
        for other in others:
            first = mine is not None and (mine.since, mine.pod.uid) < (other.since, other.pod.uid)
            for gpu, amount in self.charges_of(other):
                if not (first and gpu in waits):
                    yield gpu, amount

    def charges_of(self, kept: Kept) -> Charges:
        return (kept.charges(self.facts) if self.facts is not None else None) or ()

    def _pledged(self, facts: NodeFacts, pod: PodFacts, used: Sequence[int], gone: Collection[str]) -> Charges:
        """Which GPUs a nominated pod will get: where those that end leave room, else where it could evict."""
        if not isinstance(pod.request, Request):
            return ()
        ending = {uid for uid, holding in self.holdings.items() if holding.pod.terminating}.union(gone)
        lower = {uid for uid, holding in self.holdings.items() if holding.pod.priority < pod.priority}
        now = self.effective(gone)
        for without in (ending, ending | lower):
            after = self.effective(without)
            later = [max(taken - (a - b), 0) for taken, a, b in zip(used, now, after, strict=True)]
            places = gpu_choice.plan(pod.request, Room.of(facts, later), policies.DEFAULT, Budget(PLEDGE_LOOKS))
            if places is not None:
                return gpu_choice.charges(pod.request.shares, facts.gpus, places)
        return ()

    def like_under_way(self, request: Request, uid: str, budget: Budget) -> Refusal | None:
        """On plugin nodes kubelet asks by amount only: the same amount over another number of GPUs must wait. So must
        an equal init container: kubelet never says which of the two got what."""
        if self.facts is None or self.facts.pin is not Pin.PLUGIN:
            return None
        inits = {share.amount for share in request.shares if share.role is Role.INIT}
        if not self.split and not inits and all(share.gpus == 1 for share in request.shares):
            return None
        by_units, by_init = self._waiting_for_kubelet(budget)
        budget.left -= len(request.shares)
        if any(by_init.get(amount, set()) - {uid} for amount in inits):
            return LIKE_UNDER_WAY
        for units_asked, gpus in {(share.units, share.gpus) for share in request.shares if share.units}:
            for theirs, uids in by_units.get(units_asked, {}).items():
                if theirs != gpus and uids - {uid}:
                    return LIKE_UNDER_WAY
        return None

    def _waiting_for_kubelet(self, budget: Budget) -> UnderWay:
        """Who waits for which amount, by units and number of GPUs, and the same for init containers. Worked out once
        after each change: a node may have thousands of such containers."""
        if self._under_way is None:
            by_units: dict[int, dict[int, set[str]]] = {}
            by_init: dict[tuple[bool, int, int], set[str]] = {}
            for uid, holding in self.holdings.items():
                shares = _shares(holding.pod) if waits_for_kubelet(holding.pod) else ()
                budget.left -= 1 + len(shares)
                for share in shares:
                    by_units.setdefault(share.units, {}).setdefault(share.gpus, set()).add(uid)
                    if share.role is Role.INIT:
                        by_init.setdefault(share.amount, set()).add(uid)
            self._under_way = by_units, by_init
        return self._under_way


def _turn(pod: PodFacts) -> tuple[int, str, str]:
    """Whose turn it is among pods that wait for the same: the most important, then the oldest."""
    return (-pod.priority, pod.created, pod.uid)


def waits_for_kubelet(pod: PodFacts) -> bool:
    """Its containers have not got their GPUs from a device plugin yet."""
    return not pod.running and not (pod.node and pod.annotation(names.ALIYUN_ASSIGNED) == "true")


def _shares(pod: PodFacts) -> tuple[Share, ...]:
    return pod.request.shares if isinstance(pod.request, Request) else ()


def _shape(request: Request) -> Shares:
    pin, _, shares = request.shape
    return pin, shares


def _published(facts: NodeFacts) -> tuple[object, ...]:
    return (facts.unit, facts.pin, facts.gpus)
