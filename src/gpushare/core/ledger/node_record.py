"""One node as the ledger changes it. Everybody else reads the `NodeState` that this is."""

from gpushare.core.facts.model import Charge, NodeFacts, Pin, PodFacts, Request
from gpushare.core.ledger.holding import Holding, Kept, OldPlace, waits_for_kubelet
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.room import Room, Taken

MOVE_SECONDS = 10.0  # a moved pod counts on both GPUs: two patches of a swap do not arrive together


class NodeRecord(NodeState):
    """After any change call `renew`: until then what is free is not up to date."""

    __slots__ = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the node any more."""
        return self.facts is None and not (self._holdings or self._nominated or self._kept)

    @property
    def ends_by_time(self) -> bool:
        """Whether there is something here for `expire`."""
        return bool(self._old_places or self._cool_downs)

    def renew(self) -> None:
        """Something changed: work out again what is free."""
        taken = self.effective()
        self.room = Room.of(self.facts, taken.units, taken.slots) if self.facts is not None else None
        self.promised = bool(self._nominated or self._kept)
        self._taken_by_asker.clear()
        self._rooms.clear()
        self._starting = None
        self.forget_points()

    def forget_points(self) -> None:
        """Something changed that points depend on."""
        self._loads = self.known_view = None
        self._orders.clear()

    def begin_anew(self, facts: NodeFacts | None) -> list[Holding]:
        """The node changed: nothing is charged but old places, and what it refused it may take now. Returns what was
        held there, to be put back."""
        if self.facts is None or facts is None or _published(self.facts) != _published(facts):
            self._cool_downs.clear()
        holdings = list(self._holdings.values())
        self.facts, self._used = facts, Taken.nothing(len(facts.gpus) if facts else 0)
        self._unlocated = self._split = 0
        self._holdings.clear()
        for old_place in self._old_places.values():
            self._charge_old_place(old_place, 1)
        return holdings

    def put(self, holding: Holding) -> None:
        self._holdings[holding.pod.uid] = holding
        self._charge(holding, 1)

    def take(self, holding: Holding) -> None:
        del self._holdings[holding.pod.uid]
        self._charge(holding, -1)

    def show(self, holding: Holding) -> None:
        """The same pod holds the same here, in another state: nothing is to be renewed but what asks for its words."""
        self._holdings[holding.pod.uid] = holding
        self._starting = None

    def _charge(self, holding: Holding, sign: int) -> None:
        self._unlocated += sign * holding.unlocated
        self._split += sign * holding.splits
        self._used.add(holding.charges or (), sign)

    def nominate(self, pod: PodFacts) -> bool:
        """A pod is nominated to this node. Returns whether that is news."""
        if self._nominated.get(pod.uid) == pod:
            return False
        self._nominated[pod.uid] = pod
        return True

    def end_nomination(self, uid: str) -> None:
        del self._nominated[uid]

    def keep(self, kept: Kept) -> None:
        self._kept[kept.pod.uid] = kept

    def keep_no_longer(self, uid: str) -> None:
        del self._kept[uid]

    def keep_old_place(self, old: Holding, new: Holding, now: float) -> bool:
        """If a pod moved, charge what it had before for a while as well."""
        if self.facts is None or old.charges is None or new.charges is None or old.charges == new.charges:
            return False
        keys = [gpu.key for gpu in self.facts.gpus]
        before = self.drop_old_place(new.pod.uid)
        rows = [(keys[gpu], units, slots) for gpu, units, slots in old.charges] + list(before.held if before else ())
        rows += [(keys[gpu], -units, -slots) for gpu, units, slots in new.charges]
        left: dict[str, tuple[int, int]] = {}
        for key, units, slots in rows:
            sums = left.get(key, (0, 0))
            left[key] = sums[0] + units, sums[1] + slots
        held = [(key, max(units, 0), max(slots, 0)) for key, (units, slots) in left.items() if units > 0 or slots > 0]
        old_place = OldPlace(tuple(held), now + MOVE_SECONDS)
        self._old_places[new.pod.uid] = old_place
        self._charge_old_place(old_place, 1)
        return True

    def drop_old_place(self, uid: str) -> OldPlace | None:
        """The old place of a pod is charged no longer."""
        old_place = self._old_places.pop(uid, None)
        if old_place is not None:
            self._charge_old_place(old_place, -1)
        return old_place

    def _charge_old_place(self, old_place: OldPlace, sign: int) -> None:
        position = {gpu.key: i for i, gpu in enumerate(self.facts.gpus)} if self.facts else {}
        there = [(position[key], units, slots) for key, units, slots in old_place.held if key in position]
        self._used.add([Charge(*row) for row in there], sign)

    def cool_down(self, request: Request, now: float) -> None:
        """kubelet refused such a pod: no more of them for a while."""
        self._cool_downs.start(request, now)

    def expire(self, now: float) -> bool:
        """End what ends by time, and say whether there was anything."""
        over = [uid for uid, old_place in self._old_places.items() if old_place.until <= now]
        for uid in over:
            self.drop_old_place(uid)
        return self._cool_downs.expire(now) or bool(over)

    def ends_refusals(self, before: PodFacts | None, now: PodFacts) -> bool:
        """Whether what a pod shows ends a refusal that was not for want of room: such a pod was refused here and now
        one has started, or kubelet cannot confuse it with another any more. Also ends its cool-down."""
        proven = False
        if isinstance(now.request, Request) and now.running and not (before is not None and before.running):
            proven = self._cool_downs.forget(now.request)
        if before is None or self.facts is None or self.facts.pin is not Pin.PLUGIN:
            return proven
        told_apart = not waits_for_kubelet(now) or before.request != now.request
        return proven or (waits_for_kubelet(before) and told_apart)


def _published(facts: NodeFacts) -> tuple[object, ...]:
    return (facts.unit, facts.pin, facts.gpus, facts.limit, facts.slots, facts.nvidia_whole)
