"""A queue in which groups take turns: a group with many items delays its own, not those of others.

Pure. Namespaces are the groups of the extender's events. Within a group the first is served first; a key that is put
again keeps its place.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Turns(Generic[K, T]):
    def __init__(self) -> None:
        self._groups: dict[str, dict[K, T]] = {}  # the group that is served next is the first
        self._group_of: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def put(self, group: str, key: K, item: T) -> None:
        self._group_of[key] = group
        self._groups.setdefault(group, {})[key] = item

    def take(self) -> tuple[K, T]:
        """The next one. Its group is served again after all others."""
        group = next(iter(self._groups))
        waiting = self._groups.pop(group)
        key = next(iter(waiting))
        if len(waiting) > 1:
            self._groups[group] = waiting
        return self._remove(waiting, key)

    def drop(self, key: K) -> None:
        """Removes one that need not be served any more, if it is there."""
        group = self._group_of.get(key)
        if group is not None:
            waiting = self._groups[group]
            self._remove(waiting, key)
            if not waiting:
                del self._groups[group]

    def crowded_out(self) -> K:
        """Drops the first of the largest group, and says which it was."""
        largest = max(self._groups.values(), key=len)
        key = next(iter(largest))
        self.drop(key)
        return key

    def _remove(self, waiting: dict[K, T], key: K) -> tuple[K, T]:
        del self._group_of[key]
        return key, waiting.pop(key)
