"""Which planned share a question of kubelet is for, and where the share goes if its plan cannot be kept.

Pure. kubelet names no pod, only an amount. Every share of a pod of this node that has not got its units yet is a
`Want`, and kubelet's question is answered with a `Want` of that amount. If two equal pods come in the other order, each
gets the plan of the other: the sums per GPU are still right, and `correct` finds out afterwards who really has what.
"""

from collections.abc import Callable, Iterable, Mapping

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names, policies
from gpushare.core.facts.model import Data, Kind, NodeFacts, Pin, Places, PodFacts, Request, Share
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.room import Room
from gpushare.core.placement.task import Piece
from gpushare.node.deviceplugin.allocation.table import Owner, Table

Gpus = tuple[str, ...]
Annotated = tuple[tuple[Share, ...], Places] | None


class Want(Data, frozen=True):
    """A share that kubelet has not asked for yet. `gpus` None: it has no plan."""

    owner: Owner
    share: Share
    gpus: Gpus | None
    next: bool  # the first share of its pod that is missing: kubelet starts containers in order
    terminating: bool

    @property
    def size(self) -> int:
        return size_of(self.share)


def size_of(share: Share) -> int:
    """How many devices kubelet asks for."""
    return share.gpus if share.kind.exclusive else share.units


def each_of(share: Share) -> int:
    """How many of them are on each of its GPUs."""
    return 1 if share.kind.exclusive else share.each


class Plans:
    """The pods of this node in the order in which they were first seen, and what was planned for them."""

    def __init__(self, table: Table) -> None:
        self.pods: dict[str, PodFacts] = {}
        self.facts: NodeFacts | None = None
        self.moved: dict[Owner, Gpus] = {}  # plans that differ from the pod's annotations
        self._table = table
        self._read: dict[
            str, tuple[PodFacts, NodeFacts, Annotated]
        ] = {}  # by uid: what it was read from, and what was read

    def forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self._read.pop(uid, None)
        for owner in [owner for owner in self.moved if owner.uid == uid]:
            del self.moved[owner]

    def shares(self, uid: str) -> tuple[Share, ...]:
        """The shares of a pod as they are placed: Aliyun's extender puts each on one GPU."""
        pod = self.pods.get(uid)
        if pod is None or not isinstance(pod.request, Request):
            return ()
        plan = self._annotated(uid)
        return plan[0] if plan else pod.request.shares

    def planned(self, owner: Owner) -> Gpus | None:
        """The GPUs a share was planned for."""
        if owner in self.moved:
            return self.moved[owner]
        plan = self._annotated(owner.uid)
        if plan is None or self.facts is None:
            return None
        return tuple([self.facts.gpus[at].uuid for at in plan[1][owner.share]])

    def _annotated(self, uid: str) -> Annotated:
        """The plan in the annotations of a pod. Kept, because each question of kubelet looks at every pod."""
        pod, facts = self.pods.get(uid), self.facts
        if pod is None or facts is None:
            return None
        known = self._read.get(uid)
        if known is None or known[0] is not pod or known[1] is not facts:
            known = self._read[uid] = (pod, facts, pod_gpus.planned(pod, facts))
        return known[2]

    def is_complete(self, uid: str) -> bool:
        """Whether kubelet has asked for everything this pod needs."""
        return all(self._table.of(Owner(uid, i)) is not None for i in range(len(self.shares(uid))))

    def wants(self, size: int, *, kind: Kind, first: str = "") -> list[Want]:
        """The shares of that size that have no units yet, the most likely first: those of the pod `first`, which
        kubelet is admitting; then those that are next in their pods; then the oldest."""
        wants = [
            want for uid in self.pods for want in self.of_pod(uid) if want.share.kind is kind and want.size == size
        ]
        # They are in the order of age, which the sort keeps.
        return sorted(wants, key=lambda want: (want.owner.uid != first, not want.next, want.terminating))

    def of_pod(self, uid: str) -> list[Want]:
        missing = [
            (Owner(uid, i), share)
            for i, share in enumerate(self.shares(uid))
            if self._table.of(Owner(uid, i)) is None
        ]  # fmt: skip
        terminating = bool(missing) and self.pods[uid].terminating
        return [
            Want(owner, share, self.planned(owner), owner == missing[0][0], terminating) for owner, share in missing
        ]

    def piece(self, owner: Owner) -> Piece:
        """The shares that must be on the same GPUs as this one, because kubelet hands on the units of init
        containers."""
        shares = self.shares(owner.uid)
        request = Request(shares, Pin.PLUGIN)
        for piece in gpu_choice.pieces_of(request, Pin.PLUGIN, names.MIB) or ():  # no amount here depends on the unit
            if owner.share in piece.shares:
                return piece
        share = shares[owner.share]
        return Piece((owner.share,), share.each, share.gpus, share.kind)

    def can_be_kept(self, want: Want, used: Callable[[str], int]) -> bool:
        """Whether there is room for everything that is planned for the pod and not given yet. `used`: the units of a
        GPU that cannot be given; 0 only if the whole GPU can be given."""
        wants = self.of_pod(want.owner.uid)
        planned = all(other.gpus for other in wants)
        return planned and self._have_room(self._still(want.owner.uid, wants), used)

    def can_begin(self, want: Want, used: Callable[[str], int]) -> bool:
        """Whether there is room at least for this share and for those that take from its units."""
        together = {Owner(want.owner.uid, i) for i in self.piece(want.owner).shares}
        wants = [other for other in self.of_pod(want.owner.uid) if other.owner in together]
        return bool(want.gpus) and self._have_room(self._still(want.owner.uid, wants), used)

    def _have_room(self, needs: Mapping[str, int], used: Callable[[str], int]) -> bool:
        total = {gpu.uuid: gpu.total for gpu in self.facts.gpus} if self.facts else {}
        return all(total.get(uuid, 0) - used(uuid) >= amount for uuid, amount in needs.items())

    def outstanding(self, without: Iterable[Owner]) -> dict[str, int]:
        """By GPU, what is planned and not given yet, without the plans of these owners."""
        aside = set(without)
        amounts: dict[str, int] = {}
        for uid in self.pods:
            open_ = [want for want in self.of_pod(uid) if want.owner not in aside]
            for uuid, amount in self._still(uid, open_).items() if open_ else ():
                amounts[uuid] = amounts.get(uuid, 0) + amount
        return amounts

    def _still(self, uid: str, open_: list[Want]) -> dict[str, int]:
        """By GPU, what a pod will hold for its whole life, less what it holds already."""
        facts = self.facts
        if facts is None:
            return {}
        position = {gpu.uuid: at for at, gpu in enumerate(facts.gpus)}
        gpus_of: dict[int, Iterable[str]] = {want.owner.share: want.gpus or () for want in open_}
        shares = self.shares(uid)
        for i in range(len(shares)):
            grant = self._table.of(Owner(uid, i))
            if grant is not None:
                gpus_of[i] = grant.gpus
        places = tuple([
            tuple([position[uuid] for uuid in gpus_of.get(i, ()) if uuid in position]) for i in range(len(shares))
        ])  # fmt: skip
        held = self._table.of_pod(uid)
        later = {facts.gpus[at].uuid: amount for at, amount, _ in gpu_choice.charges(shares, facts, places)}
        more = {uuid: amount - self._table.used(uuid, held) for uuid, amount in later.items()}
        return {uuid: amount for uuid, amount in more.items() if amount > 0}

    def replan(self, want: Want, used: Callable[[str], int]) -> dict[Owner, Gpus] | None:
        """Other GPUs, with all other plans kept: for all shares of the pod that can still move. If there are none, for
        this share and those that must be with it."""
        uid = want.owner.uid
        piece = [Owner(uid, i) for i in self.piece(want.owner).shares]
        if any(self._table.of(owner) is not None for owner in piece):
            return None  # a share that has its units cannot move
        pieces = {self.piece(other.owner) for other in self.of_pod(uid)}
        movable = [Owner(uid, i) for p in pieces if self._is_untouched(uid, p) for i in p.shares]
        return self._place(sorted(movable), used) or self._place(piece, used)

    def best_fit(self, share: Share, used: Callable[[str], int]) -> Gpus | None:
        """GPUs for a container without a plan, with all plans kept."""
        places = self._plan((share,), used, self.outstanding(()))
        return None if places is None else places[0]

    def _is_untouched(self, uid: str, piece: Piece) -> bool:
        return all(self._table.of(Owner(uid, i)) is None for i in piece.shares)

    def _place(self, owners: list[Owner], used: Callable[[str], int]) -> dict[Owner, Gpus] | None:
        shares = self.shares(owners[0].uid)
        places = self._plan(tuple([shares[owner.share] for owner in owners]), used, self.outstanding(owners))
        return None if places is None else dict(zip(owners, places, strict=True))

    def _plan(
        self, shares: tuple[Share, ...], used: Callable[[str], int], outstanding: Mapping[str, int]
    ) -> list[Gpus] | None:
        facts = self.facts
        if facts is None:
            return None
        taken = [min(used(gpu.uuid) + outstanding.get(gpu.uuid, 0), gpu.total) for gpu in facts.gpus]
        places = gpu_choice.plan(Request(shares, Pin.PLUGIN), Room.of(facts, taken), policies.DEFAULT)
        return None if places is None else [tuple([facts.gpus[at].uuid for at in chosen]) for chosen in places]
