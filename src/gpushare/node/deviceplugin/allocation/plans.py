"""Which planned share a request of kubelet is for, and where it goes if the plan cannot be kept.

Pure. kubelet names no pod: it asks for an amount. So every share that some pod of this node was promised and has not
got yet is a `Want`, and a request is served by one of that amount. If each goes to some container that asks for exactly
it, the sums per GPU are right even when two equal pods come in the other order; who really has what is put right
afterwards (`correct`).
"""

from collections.abc import Callable, Iterable, Mapping

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import policies
from gpushare.core.facts.model import Data, NodeFacts, Pin, Places, PodFacts, Request, Share
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.room import Room
from gpushare.core.placement.search import Piece
from gpushare.node.deviceplugin.allocation.table import Owner, Table

Gpus = tuple[str, ...]
Found = tuple[tuple[Share, ...], Places] | None


class Want(Data, frozen=True):
    """A share that kubelet has not asked for yet. `gpus` None: nobody has planned it."""

    owner: Owner
    share: Share
    gpus: Gpus | None
    next: bool  # kubelet starts containers in order: it is the first of its pod that is missing
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
        self.moved: dict[Owner, Gpus] = {}  # plans that are not what the pod's annotations say
        self._table = table
        self._read: dict[
            str, tuple[PodFacts, NodeFacts, Found]
        ] = {}  # by uid: what it was read from, and what was read

    def forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self._read.pop(uid, None)
        for owner in [owner for owner in self.moved if owner.uid == uid]:
            del self.moved[owner]

    def shares(self, uid: str) -> tuple[Share, ...]:
        """The shares of a pod as they are placed: the original's extender puts each on one GPU."""
        pod = self.pods.get(uid)
        if pod is None or not isinstance(pod.request, Request):
            return ()
        found = self._found(uid)
        return found[0] if found else pod.request.shares

    def planned(self, owner: Owner) -> Gpus | None:
        """The GPUs a share was planned for."""
        if owner in self.moved:
            return self.moved[owner]
        found = self._found(owner.uid)
        if found is None or self.facts is None:
            return None
        return tuple([self.facts.gpus[at].uuid for at in found[1][owner.share]])

    def _found(self, uid: str) -> Found:
        """What the annotations of a pod say; read once, because every request of kubelet looks at every pod."""
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

    def wants(self, size: int, *, whole: bool, first: str = "") -> list[Want]:
        """The shares of that size which nobody has got yet, most likely first: of the pod `first`, which kubelet is
        busy with; then those that are next in their pods; then by age."""
        found = [
            want
            for uid in self.pods
            for want in self.of_pod(uid)
            if want.share.kind.exclusive is whole and want.size == size
        ]
        # The order of `found` is the age.
        return sorted(found, key=lambda want: (want.owner.uid != first, not want.next, want.terminating))

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
        """The shares that must be on the same GPUs as this one: kubelet hands the units of init containers on."""
        shares = self.shares(owner.uid)
        request = Request(shares, Pin.PLUGIN)
        for piece in gpu_choice.pieces_of(request, Pin.PLUGIN) or ():
            if owner.share in piece.shares:
                return piece
        share = shares[owner.share]
        return Piece((owner.share,), share.each, share.gpus, share.kind)

    def can_be_kept(self, want: Want, used: Callable[[str], int]) -> bool:
        """Whether there is room for all that is planned for the pod and not given yet. `used`: the units of a GPU that
        kubelet cannot be given; 0 only where a whole GPU can be."""
        wants = self.of_pod(want.owner.uid)
        planned = all(other.gpus for other in wants)
        return planned and self._have_room(self._still(want.owner.uid, wants), used)

    def can_begin(self, want: Want, used: Callable[[str], int]) -> bool:
        """Whether there is room for this share at least, and for those that draw from its units."""
        together = {Owner(want.owner.uid, i) for i in self.piece(want.owner).shares}
        wants = [other for other in self.of_pod(want.owner.uid) if other.owner in together]
        return bool(want.gpus) and self._have_room(self._still(want.owner.uid, wants), used)

    def _have_room(self, needs: Mapping[str, int], used: Callable[[str], int]) -> bool:
        total = {gpu.uuid: gpu.total for gpu in self.facts.gpus} if self.facts else {}
        return all(total.get(uuid, 0) - used(uuid) >= amount for uuid, amount in needs.items())

    def pledged(self, without: Iterable[Owner]) -> dict[str, int]:
        """By GPU, what pods will still get there, those owners aside."""
        aside = set(without)
        kept: dict[str, int] = {}
        for uid in self.pods:
            open_ = [want for want in self.of_pod(uid) if want.owner not in aside]
            for uuid, amount in self._still(uid, open_).items() if open_ else ():
                kept[uuid] = kept.get(uuid, 0) + amount
        return kept

    def _still(self, uid: str, open_: list[Want]) -> dict[str, int]:
        """What a pod will hold for its whole life, less what it holds already."""
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
        later = {facts.gpus[at].uuid: amount for at, amount in gpu_choice.charges(shares, facts.gpus, places)}
        more = {uuid: amount - self._table.used(uuid, held) for uuid, amount in later.items()}
        return {uuid: amount for uuid, amount in more.items() if amount > 0}

    def replan(self, want: Want, used: Callable[[str], int]) -> dict[Owner, Gpus] | None:
        """Other GPUs, beside every other plan: for all shares of the pod that can still move, or else for this one and
        those that must be with it."""
        uid = want.owner.uid
        piece = [Owner(uid, i) for i in self.piece(want.owner).shares]
        if any(self._table.of(owner) is not None for owner in piece):
            return None  # what is there cannot move any more
        pieces = {self.piece(other.owner) for other in self.of_pod(uid)}
        movable = [Owner(uid, i) for p in pieces if self._is_untouched(uid, p) for i in p.shares]
        return self._place(sorted(movable), used) or self._place(piece, used)

    def best_fit(self, share: Share, used: Callable[[str], int]) -> Gpus | None:
        """GPUs for a container nobody has planned, beside all plans."""
        places = self._plan((share,), used, self.pledged(()))
        return None if places is None else places[0]

    def _is_untouched(self, uid: str, piece: Piece) -> bool:
        return all(self._table.of(Owner(uid, i)) is None for i in piece.shares)

    def _place(self, owners: list[Owner], used: Callable[[str], int]) -> dict[Owner, Gpus] | None:
        shares = self.shares(owners[0].uid)
        places = self._plan(tuple([shares[owner.share] for owner in owners]), used, self.pledged(owners))
        return None if places is None else dict(zip(owners, places, strict=True))

    def _plan(
        self, shares: tuple[Share, ...], used: Callable[[str], int], pledged: Mapping[str, int]
    ) -> list[Gpus] | None:
        facts = self.facts
        if facts is None:
            return None
        taken = [min(used(gpu.uuid) + pledged.get(gpu.uuid, 0), gpu.total) for gpu in facts.gpus]
        places = gpu_choice.plan(Request(shares, Pin.PLUGIN), Room.of(facts, taken), policies.DEFAULT)
        return None if places is None else [tuple([facts.gpus[at].uuid for at in chosen]) for chosen in places]
