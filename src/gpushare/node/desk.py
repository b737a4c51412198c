"""All the device plugin knows while it runs: who holds what, what is planned, and where kubelet is in its work.

Pure: state in memory, no I/O. The two questions kubelet asks are answered in `prefer` and `allocate`, which work on
this; `settle` puts it right when kubelet says who really has what.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpushare.core.model import NodeFacts, PodFacts, Role, Share
from gpushare.node.ids import Units
from gpushare.node.plans import Gpus, Plans
from gpushare.node.table import Grant, Owner, Table


class Steer(NamedTuple):
    """What kubelet was told to take; it asks for exactly that a moment later. `moved`: plans that change by it."""

    units: Units
    whole: bool
    owner: Owner | None
    moved: dict[Owner, Gpus]


class Desk:
    def __init__(self) -> None:
        self.table = Table()
        self.plans = Plans(self.table)
        self.most: int | None = None  # units that a container may have with this kubelet
        self.steer: Steer | None = None
        self.busy_with = ""  # the pod that got something last: kubelet admits one pod after the other
        self.doubted: set[int] = set()  # grants from just before kubelet restarted
        self.knows_all = False  # whether the last look found all pods of this node

    @property
    def facts(self) -> NodeFacts:
        assert self.plans.facts is not None, "set_gpus comes first"
        return self.plans.facts

    def set_gpus(self, facts: NodeFacts) -> None:
        self.plans.facts = facts
        self.table.gpus = {gpu.uuid: gpu for gpu in facts.gpus}

    def see(self, pod: PodFacts) -> None:
        """A pod of this node as it is now."""
        if pod.finished:
            self.end(pod.uid)
        else:
            self.plans.pods[pod.uid] = pod

    def end(self, uid: str) -> None:
        """A pod is gone or has ended. If another could have got what only seems to be its, kubelet will say whose it
        is."""
        grants = self.table.of_pod(uid)
        self.plans.forget(uid)
        for grant in grants:
            if grant.sure or not self.plans.wants(grant.size, whole=grant.whole):
                self.table.drop(grant)
            else:
                for owner in list(grant.owners):
                    self.table.release(owner)

    def kubelet_restarted(self) -> None:
        """What was given and not seen since may not be in its checkpoint: then it asks again, and offers it anew."""
        self.doubted = {grant.number for grant in self.table.grants.values() if not grant.sure}

    def refused(self) -> None:
        """kubelet was told no: the pod it is busy with has failed, and what its other containers got is free."""
        uid, self.busy_with, self.steer = self.under_way(), "", None
        for grant in self.table.of_pod(uid) if uid else ():
            if not grant.sure:
                self.table.drop(grant)

    def under_way(self) -> str:
        """The pod of which kubelet has not asked for everything yet."""
        return "" if self.plans.is_complete(self.busy_with) else self.busy_with

    def share(self, owner: Owner) -> Share:
        return self.plans.shares(owner.uid)[owner.share]

    def together(self, owner: Owner) -> list[Owner]:
        """The shares that must be on the same GPUs, this one included."""
        return [Owner(owner.uid, i) for i in self.plans.piece(owner).shares]

    def relabel(self, grant: Grant, owner: Owner) -> None:
        """A grant belongs to another container than was thought. Whom it was taken for gets the other's, or its plan:
        the two asked for the same amount, so the sums stay as they were planned."""
        before = next(iter(grant.owners), None)
        others, plan = self.table.of(owner), self.plans.planned(owner)
        self.table.assign(owner, grant)
        if before is not None and before != owner:
            self.table.release(before)
            if others is not None:
                self.table.assign(before, others)
                self._mark(others)
            elif plan is not None:
                for missing in self.together(before):
                    if self.table.of(missing) is None:
                        self.plans.moved[missing] = plan
        self._mark(grant)

    def _mark(self, grant: Grant) -> None:
        grant.passing = any(self.share(owner).role is Role.INIT for owner in grant.owners)

    # Words for people

    def gpus(self, uuids: Iterable[str]) -> str:
        """`GPU 0 and GPU 1`."""
        numbers = sorted(self.table.gpus[uuid].index for uuid in uuids if uuid in self.table.gpus)
        return " and ".join(f"GPU {number}" for number in numbers) or "a GPU"

    def amount(self, size: int, whole: bool) -> str:
        """`3500 MiB`, `2 GPUs`."""
        return f"{size} GPU{'s' if size > 1 else ''}" if whole else f"{size} {self.facts.unit}"

    def counts(self, units: Units) -> str:
        """`300 of GPU 0, 200 of GPU 1`."""
        on = sorted((self.table.gpus[uuid].index, bits.bit_count()) for uuid, bits in units.items())
        return ", ".join(f"{count} of GPU {index}" for index, count in on)

    def holder(self, grants: Sequence[Grant]) -> str:
        """One of those who hold something; the first that is known."""
        for owner in sorted(owner for grant in grants for owner in grant.owners):
            pod = self.plans.pods.get(owner.uid)
            if pod is not None:
                return f"pod {pod.namespace}/{pod.name}"
        return "another pod"


def count(units: Units) -> int:
    return sum(bits.bit_count() for bits in units.values())
