"""All that the device plugin knows: who holds what, what is planned, and which pod kubelet is admitting.

Pure: state in memory, no I/O. `prefer` and `allocate` read and change it when kubelet asks; `correct` corrects it when
kubelet's list shows who really has what.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpushare.core.facts.model import Kind, NodeFacts, PodFacts, Role, Share, Unit
from gpushare.kubelet.unit_ids import Catalog, Units
from gpushare.node.deviceplugin.allocation.plans import Gpus, Plans, size_of
from gpushare.node.deviceplugin.allocation.table import Grant, Owner, Table


class Steer(NamedTuple):
    """The units that kubelet was told to take: it asks for exactly these a moment later. `moved`: plans that this
    changes."""

    units: Units
    kind: Kind
    owner: Owner | None
    moved: dict[Owner, Gpus]


class State:
    def __init__(self, unit: Unit) -> None:
        self.catalog = Catalog(unit)
        self.table = Table()
        self.plans = Plans(self.table)
        self.most: int | None = None  # units that a container may have with this kubelet
        self.cgpu_disabled = False  # by a label of the node
        self.steer: Steer | None = None
        self.busy_with = ""  # uid of the pod that got something last: kubelet admits one pod after the other
        self.doubted: set[str] = set()  # uids of pods that got something just before kubelet restarted
        self.knows_all = False  # whether the pods of this node were listed completely the last time

    @property
    def facts(self) -> NodeFacts:
        assert self.plans.facts is not None, "set_gpus comes first"
        return self.plans.facts

    def set_gpus(self, facts: NodeFacts) -> None:
        self.plans.facts = facts
        self.table.gpus = {gpu.uuid: gpu for gpu in facts.gpus}
        self.catalog.know(facts.gpus)

    def see(self, pod: PodFacts) -> None:
        """A pod of this node as it is now."""
        if pod.finished:
            self.end(pod.uid)
        else:
            self.plans.pods[pod.uid] = pod

    def end(self, uid: str) -> None:
        """A pod is gone or has ended. If it is uncertain whether a grant was this pod's, the grant is kept without
        owner until kubelet confirms whose it is."""
        for grant in self.table.of_pod(uid):
            if grant.confirmed:
                self.table.drop(grant)
            else:
                self._disown(grant)
        self.plans.forget(uid)

    def _disown(self, grant: Grant) -> None:
        for owner in list(grant.owners):
            self.table.release(owner)

    def kubelet_restarted(self) -> None:
        """Grants that kubelet has not confirmed may be missing in its checkpoint. Then it asks for these pods again,
        and offers the same units once more."""
        self.doubted = {o.uid for grant in self.table.grants.values() if not grant.confirmed for o in grant.owners}

    def refused(self) -> None:
        """kubelet got a refusal: the pod it is admitting fails. What that pod got before has no owner now, and is free
        as soon as kubelet confirms it."""
        uid, self.busy_with, self.steer = self.admitting(), "", None
        for grant in self.table.of_pod(uid) if uid else ():
            if not grant.confirmed:
                self._disown(grant)

    def admitting(self) -> str:
        """The uid of the pod for which kubelet has not asked for everything yet; empty: none."""
        return "" if self.plans.is_complete(self.busy_with) else self.busy_with

    def share(self, owner: Owner) -> Share:
        return self.plans.shares(owner.uid)[owner.share]

    def unclear(self, owner: Owner, within: Callable[[str], bool]) -> Grant | None:
        """A grant that may be this container's: it was made for an equal container of a pod `within`, or it has no
        owner. Containers of the same role first."""
        share = self.share(owner)
        unconfirmed = [grant for grant in self.table.grants.values() if not grant.confirmed]
        for same_role in (True, False):
            for grant in unconfirmed:
                candidates = (self.share(o) for o in grant.owners if within(o.uid))
                if any(c.amount == share.amount and (c.role is share.role or not same_role) for c in candidates):
                    return grant
        alike = (share.kind, size_of(share), share.gpus)
        return next((g for g in unconfirmed if not g.owners and (g.kind, g.size, len(g.gpus)) == alike), None)

    def together(self, owner: Owner) -> list[Owner]:
        """The shares that must be on the same GPUs, this one included."""
        return [Owner(owner.uid, i) for i in self.plans.piece(owner).shares]

    def relabel(self, grant: Grant, owner: Owner) -> None:
        """A grant belongs to another container than was assumed. The two containers swap grants or plans: they asked
        for the same amount, so the sums per GPU stay the same. Shares that must be on the same GPUs move together."""
        alike = (o for o in grant.owners if self._alike(o, owner))
        before = next(alike, next(iter(grant.owners), None))
        if before is None or before.uid == owner.uid:
            self.table.assign(owner, grant)
            self._mark(grant)
            return
        if self.busy_with == before.uid:
            self.busy_with = owner.uid  # kubelet was admitting that pod
        self._swap(before, owner)
        rest = [other for other in self.together(owner) if other != owner]
        for other in self.together(before):
            twin = next((o for o in rest if other != before and self._alike(o, other)), None)
            if twin is not None:
                rest.remove(twin)
                self._swap(other, twin)

    def _alike(self, one: Owner, other: Owner) -> bool:
        """Whether two containers ask for the same and have the same role."""
        return self.share(one).amount == self.share(other).amount and self.share(one).role is self.share(other).role

    def trade_plans(self, owner: Owner, gpus: frozenset[str]) -> None:
        """A container is on the GPUs that are planned for an equal pod which has nothing yet: the two swap their
        plans."""
        if gpus == frozenset(self.plans.planned(owner) or ()):
            return
        shares = self.plans.shares(owner.uid)
        for uid in self.plans.pods:
            if uid == owner.uid or self.plans.shares(uid) != shares or self.table.of_pod(uid):
                continue
            if gpus == frozenset(self.plans.planned(Owner(uid, owner.share)) or ()):
                for i in range(len(shares)):
                    self._swap(Owner(owner.uid, i), Owner(uid, i))
                return

    def _swap(self, one: Owner, two: Owner) -> None:
        grants, plans = (self.table.of(one), self.table.of(two)), (self.plans.planned(one), self.plans.planned(two))
        if any(grant is not None and grant.confirmed for grant in grants):
            return
        for owner, grant, plan in ((one, grants[1], plans[1]), (two, grants[0], plans[0])):
            self.table.release(owner)
            if grant is not None:
                self.table.assign(owner, grant)
            elif plan is not None and len(plan) == self.share(owner).gpus:
                self.plans.moved[owner] = plan
        for grant in grants:
            if grant is not None:
                self._mark(grant)

    def _mark(self, grant: Grant) -> None:
        grant.passing = any(self.share(owner).role is Role.INIT for owner in grant.owners)

    # Texts for people

    def gpus(self, uuids: Iterable[str]) -> str:
        """`GPU 0 and GPU 1`."""
        numbers = sorted(self.table.gpus[uuid].index for uuid in uuids if uuid in self.table.gpus)
        return " and ".join(f"GPU {number}" for number in numbers) or "a GPU"

    def amount(self, size: int, kind: Kind) -> str:
        """`3500 MiB`, `2 GPUs`."""
        return f"{size} GPU{'s' if size > 1 else ''}" if kind.exclusive else f"{size} {self.facts.unit}"

    def counts(self, units: Units) -> str:
        """`300 of GPU 0, 200 of GPU 1`."""
        on = sorted((self.table.gpus[uuid].index, bits.bit_count()) for uuid, bits in units.items())
        return ", ".join(f"{count} of GPU {index}" for index, count in on)

    def holder(self, grants: Sequence[Grant]) -> str:
        """One of the pods that hold these grants."""
        for owner in sorted(owner for grant in grants for owner in grant.owners):
            pod = self.plans.pods.get(owner.uid)
            if pod is not None:
                return f"pod {pod.namespace}/{pod.name}"
        return "another pod"


def count(units: Units) -> int:
    return sum(bits.bit_count() for bits in units.values())
