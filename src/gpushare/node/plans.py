"""Which planned share a request of kubelet is for, and where it goes if the plan cannot be kept.

Pure. kubelet names no pod: it asks for an amount. So every share that some pod of this node was promised and has not
got yet is a `Want`, and a request is served by one of that amount. If each goes to some container that asks for exactly
it, the sums per GPU are right even when two equal pods come in the other order; who really has what is put right
afterwards (`settle`). Called by `allocate`.
"""

from collections.abc import Callable, Iterable, Mapping

from gpushare.core import choose, codec
from gpushare.core.choose import Piece, Room
from gpushare.core.model import Data, NodeFacts, Pin, Places, PodFacts, Request, Share
from gpushare.node.table import Owner, Table

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
    return share.gpus if share.whole else share.units


def each_of(share: Share) -> int:
    """How many of them are on each of its GPUs."""
    return 1 if share.whole else share.each


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
        if pod is None or not isinstance(pod.claim, Request):
            return ()
        found = self._found(uid)
        return found[0] if found else pod.claim.shares

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
            known = self._read[uid] = (pod, facts, codec.planned(pod, facts))
        return known[2]

    def is_complete(self, uid: str) -> bool:
        """Whether kubelet has asked for everything this pod needs."""
        return all(self._table.of(Owner(uid, i)) is not None for i in range(len(self.shares(uid))))

    def wants(self, size: int, *, whole: bool, first: str = "") -> list[Want]:
        """The shares of that size which nobody has got yet, most likely first: of the pod `first`, which kubelet is
        busy with; then those that are next in their pods; then by age."""
        found = [
            want for uid in self.pods for want in self.of_pod(uid) if want.share.whole is whole and want.size == size
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
        for piece in choose.pieces_of(request, Pin.PLUGIN) or ():
            if owner.share in piece.shares:
                return piece
        share = shares[owner.share]
        return Piece((owner.share,), share.each, share.gpus, share.whole)

    def needs(self, want: Want) -> dict[str, int]:
        """What must be free on each planned GPU so that this share and those that draw from its units can be met."""
        piece = self.piece(want.owner)
        if any(self._table.of(Owner(want.owner.uid, i)) is not None for i in piece.shares):
            return dict.fromkeys(want.gpus or (), each_of(want.share))
        on: set[str] = set()
        for i in piece.shares:
            on.update(self.planned(Owner(want.owner.uid, i)) or ())
        return dict.fromkeys(on, 1 if piece.whole else piece.each)

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
        later = {facts.gpus[at].uuid: amount for at, amount in choose.charges(shares, facts.gpus, places)}
        more = {uuid: amount - self._table.used(uuid, held) for uuid, amount in later.items()}
        return {uuid: amount for uuid, amount in more.items() if amount > 0}

    def replan(self, want: Want, free: Callable[[str], int]) -> dict[Owner, Gpus] | None:
        """Other GPUs for this share, and for all that must be with it, where all of them fit beside every other plan.
        `free`: how many units kubelet could be given on a GPU."""
        facts = self.facts
        if facts is None:
            return None
        piece = self.piece(want.owner)
        owners = [Owner(want.owner.uid, i) for i in piece.shares]
        if any(self._table.of(owner) is not None for owner in owners):
            return None  # what is there cannot move any more
        pledged = self.pledged(owners)
        used = [self._used(gpu.uuid, gpu.total, piece.whole, free, pledged) for gpu in facts.gpus]
        shares = self.shares(want.owner.uid)
        request = Request(tuple([shares[i] for i in piece.shares]), Pin.PLUGIN)
        places = choose.plan(request, Room.of(facts, used), choose.BINPACK)
        if places is None:
            return None
        return {
            owner: tuple([facts.gpus[at].uuid for at in chosen])
            for owner, chosen in zip(owners, places, strict=True)
        }  # fmt: skip

    def best_fit(self, share: Share, free: Callable[[str], int]) -> Gpus | None:
        """GPUs for a container nobody has planned, beside all plans."""
        facts = self.facts
        if facts is None:
            return None
        pledged = self.pledged(())
        used = [self._used(gpu.uuid, gpu.total, share.whole, free, pledged) for gpu in facts.gpus]
        places = choose.plan(Request((share,), Pin.PLUGIN), Room.of(facts, used), choose.BINPACK)
        return None if places is None else tuple([facts.gpus[at].uuid for at in places[0]])

    @staticmethod
    def _used(uuid: str, total: int, whole: bool, free: Callable[[str], int], pledged: Mapping[str, int]) -> int:
        if whole:
            return 0 if free(uuid) and not pledged.get(uuid) else total or 1
        return total - max(free(uuid) - pledged.get(uuid, 0), 0)
