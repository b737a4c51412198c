"""Who holds which unit of which GPU: the device plugin's own table, which decides.

Pure. kubelet keeps such a table, too, but can lose an entry and hand a unit out twice; and to it memory and whole GPUs
have nothing to do with each other. So nothing is given that stands here as held. Units are bits of one number per GPU:
a full node has 200,000 of them. Changed by `allocate` (what is given), `state` (who has ended), `prefer` (what kubelet
has free again) and `correct` (what kubelet says who has).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpushare.core.facts.model import Gpu
from gpushare.kubelet.unit_ids import Units


class Owner(NamedTuple):
    """A container that asks for GPUs: its pod, and which of the pod's shares it is (`Request.shares`)."""

    uid: str
    share: int


class Grant:
    """What one container was given; or all ordinary init containers of a pod, which hand their units on."""

    __slots__ = ("number", "owners", "passing", "sure", "units", "unnamed", "whole")

    def __init__(self, number: int, units: Mapping[str, int], whole: bool, unnamed: Mapping[str, int]) -> None:
        self.number = number  # the order in which they were given
        self.units: Units = dict(units)
        self.whole = whole  # GPUs, not memory: each has the one bit 1
        self.unnamed = dict(unnamed)  # units held under ids that are not known, or not ours: how many, by GPU
        self.owners: set[Owner] = set()  # whose it is, as far as anybody can tell; none: nobody can
        self.passing = False  # units of init containers, which later containers of the pod will draw from
        self.sure = False  # that owners are right: kubelet said so

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(self.units) | frozenset(self.unnamed)

    @property
    def size(self) -> int:
        """How many ids kubelet counts for it."""
        return sum(units.bit_count() for units in self.units.values()) + sum(self.unnamed.values())


class Table:
    def __init__(self) -> None:
        self.gpus: dict[str, Gpu] = {}  # by uuid
        self.grants: dict[int, Grant] = {}
        self._by_owner: dict[Owner, Grant] = {}
        self._number = 0

    @property
    def last(self) -> int:
        """The number of the latest grant."""
        return self._number

    def give(
        self,
        owner: Owner | None,
        units: Mapping[str, int],
        *,
        whole: bool,
        unnamed: Mapping[str, int] | None = None,
    ) -> Grant:
        self._number += 1
        grant = self.grants[self._number] = Grant(self._number, units, whole, unnamed or {})
        if owner is not None:
            self.assign(owner, grant)
        return grant

    def drop(self, grant: Grant) -> None:
        """Its units are free."""
        del self.grants[grant.number]
        for owner in grant.owners:
            del self._by_owner[owner]

    def of(self, owner: Owner) -> Grant | None:
        return self._by_owner.get(owner)

    def of_pod(self, uid: str) -> list[Grant]:
        return [grant for grant in self.grants.values() if any(owner.uid == uid for owner in grant.owners)]

    def assign(self, owner: Owner, grant: Grant) -> None:
        """This is whose it is."""
        self.release(owner)
        self._by_owner[owner] = grant
        grant.owners.add(owner)

    def release(self, owner: Owner) -> None:
        """What was taken for its grant is not: nobody knows whose that one is."""
        before = self._by_owner.pop(owner, None)
        if before is not None:
            before.owners.discard(owner)

    def taken(self, uuid: str) -> int:
        """The units of memory that are held, as bits."""
        taken = 0
        for grant in self.grants.values():
            if not grant.whole:
                taken |= grant.units.get(uuid, 0)
        return taken

    def is_whole(self, uuid: str) -> bool:
        """Whether somebody has the GPU for himself."""
        return any(grant.whole and grant.units.get(uuid) for grant in self.grants.values())

    def used(self, uuid: str, of: Iterable[Grant] | None = None) -> int:
        """Units of a GPU that are held, a whole GPU with all it has; by these grants only, if they are given."""
        grants = list(self.grants.values() if of is None else of)
        if any(grant.whole and grant.units.get(uuid) for grant in grants):
            return self.gpus[uuid].total if uuid in self.gpus else 0
        named = 0
        for grant in grants:
            named |= grant.units.get(uuid, 0)
        return named.bit_count() + sum(grant.unnamed.get(uuid, 0) for grant in grants)

    def held(self) -> dict[str, int]:
        """Units held, by GPU."""
        on = {uuid for grant in self.grants.values() for uuid in grant.gpus}
        return {uuid: used for uuid in sorted(on) if (used := self.used(uuid))}

    def free(self, uuid: str, *, whole: bool) -> int:
        """What may be given on a GPU, as bits. Of an unhealthy one, nothing; with units held under unknown ids, more
        bits are free than `room` allows to give."""
        gpu = self.gpus.get(uuid)
        if gpu is None or not gpu.healthy or self.is_whole(uuid):
            return 0
        if whole:
            return 0 if self.used(uuid) else 1
        return ((1 << gpu.total) - 1) & ~self.taken(uuid)

    def room(self, uuid: str, *, whole: bool) -> int:
        """How many of them."""
        free = self.free(uuid, whole=whole)
        return free if whole or not free else max(self.gpus[uuid].total - self.used(uuid), 0)

    def holders(self, units: Mapping[str, int], *, whole: bool) -> list[Grant]:
        """The grants in whose way these units would be."""
        return [
            grant
            for grant in self.grants.values()
            if any(_overlap(grant, uuid, bits, whole) for uuid, bits in units.items())
        ]


def _overlap(grant: Grant, uuid: str, bits: int, whole: bool) -> bool:
    if grant.whole != whole:
        return bool(grant.units.get(uuid) or grant.unnamed.get(uuid))  # a whole GPU and memory of it exclude each other
    return bool(grant.units.get(uuid, 0) & bits)
