"""Who holds which unit of which GPU: the device plugin's own table.

Pure. kubelet keeps such a table, too, but it can lose an entry and give a unit out twice, and it does not know that a
whole GPU and its memory exclude each other. So this table decides: what it shows as held is not given again. The units
of a GPU are the bits of one number, because a full node has 200,000 units.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpushare.core.facts.model import Gpu, Kind
from gpushare.kubelet.unit_ids import Units


class Owner(NamedTuple):
    """A container that asks for GPUs: its pod, and which of the pod's shares it is (`Request.shares`)."""

    uid: str
    share: int


class Grant:
    """What one container was given, or all ordinary init containers of a pod together: they hand their units on."""

    __slots__ = ("confirmed", "kind", "number", "owners", "passing", "units", "unnamed")

    def __init__(self, number: int, units: Mapping[str, int], kind: Kind, unnamed: Mapping[str, int]) -> None:
        self.number = number  # grants are numbered in the order in which they were made
        self.units: Units = dict(units)
        self.kind = kind  # of whole GPUs each has one bit
        self.unnamed = dict(unnamed)  # by GPU, how many units are held under ids that are unknown or not ours
        self.owners: set[Owner] = set()  # empty: nobody knows whose it is
        self.passing = False  # units of init containers, from which later containers of the pod will take
        self.confirmed = False  # kubelet's list has shown that the owners are right

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(self.units) | frozenset(self.unnamed)

    @property
    def size(self) -> int:
        """The number of ids that kubelet counts for it."""
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
        kind: Kind,
        unnamed: Mapping[str, int] | None = None,
    ) -> Grant:
        self._number += 1
        grant = self.grants[self._number] = Grant(self._number, units, kind, unnamed or {})
        if owner is not None:
            self.assign(owner, grant)
        return grant

    def drop(self, grant: Grant) -> None:
        """Removes a grant: its units are free."""
        del self.grants[grant.number]
        for owner in grant.owners:
            del self._by_owner[owner]

    def of(self, owner: Owner) -> Grant | None:
        return self._by_owner.get(owner)

    def of_pod(self, uid: str) -> list[Grant]:
        return [grant for grant in self.grants.values() if any(owner.uid == uid for owner in grant.owners)]

    def assign(self, owner: Owner, grant: Grant) -> None:
        """The grant is this container's."""
        self.release(owner)
        self._by_owner[owner] = grant
        grant.owners.add(owner)

    def release(self, owner: Owner) -> None:
        """The grant of this container, if it has one, is not its own after all."""
        before = self._by_owner.pop(owner, None)
        if before is not None:
            before.owners.discard(owner)

    def taken(self, uuid: str) -> int:
        """The units of memory that are held on a GPU, as bits."""
        taken = 0
        for grant in self.grants.values():
            if not grant.kind.exclusive:
                taken |= grant.units.get(uuid, 0)
        return taken

    def is_whole(self, uuid: str) -> bool:
        """Whether a container has the whole GPU."""
        return any(grant.kind.exclusive and grant.units.get(uuid) for grant in self.grants.values())

    def used(self, uuid: str, of: Iterable[Grant] | None = None) -> int:
        """The number of units held on a GPU, by the grants `of` or by all. A GPU held as a whole counts with all its
        units."""
        grants = list(self.grants.values() if of is None else of)
        if any(grant.kind.exclusive and grant.units.get(uuid) for grant in grants):
            return self.gpus[uuid].total if uuid in self.gpus else 0
        named = 0
        for grant in grants:
            named |= grant.units.get(uuid, 0)
        return named.bit_count() + sum(grant.unnamed.get(uuid, 0) for grant in grants)

    def held(self) -> dict[str, int]:
        """Units held, by GPU."""
        on = {uuid for grant in self.grants.values() for uuid in grant.gpus}
        return {uuid: used for uuid in sorted(on) if (used := self.used(uuid))}

    def free(self, uuid: str, *, kind: Kind) -> int:
        """What may be given on a GPU, as bits. Of an unhealthy one, nothing; with units held under unknown ids, more
        bits are free than `room` allows to give."""
        gpu = self.gpus.get(uuid)
        if gpu is None or not gpu.healthy or self.is_whole(uuid):
            return 0
        if kind.exclusive:
            return 0 if self.used(uuid) else 1
        return ((1 << gpu.total) - 1) & ~self.taken(uuid)

    def room(self, uuid: str, *, kind: Kind) -> int:
        """The number of units that may be given on a GPU."""
        free = self.free(uuid, kind=kind)
        return free if kind.exclusive or not free else max(self.gpus[uuid].total - self.used(uuid), 0)

    def holders(self, units: Mapping[str, int], *, kind: Kind) -> list[Grant]:
        """The grants that hold any of these units."""
        return [
            grant
            for grant in self.grants.values()
            if any(_overlap(grant, uuid, bits, kind) for uuid, bits in units.items())
        ]


def _overlap(grant: Grant, uuid: str, bits: int, kind: Kind) -> bool:
    if grant.kind is not kind:
        return bool(grant.units.get(uuid) or grant.unnamed.get(uuid))  # a whole GPU and memory of it exclude each other
    return bool(grant.units.get(uuid, 0) & bits)
