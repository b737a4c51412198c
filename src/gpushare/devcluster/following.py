"""What changed in the store since the last look: controllers and kubelet follow the store with it, without HTTP.

They run in the server's process and event loop, so the store is their cache and is never old. Several changes of one
object between two looks are one difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpushare.devcluster.apiserver.store import Entry, Store
from gpushare.devcluster.apiserver.watching import Hub


@dataclass(frozen=True)
class Difference:
    """One object that changed. `before` is None if it is new, `after` is None if it is gone."""

    resource: str
    before: Entry | None
    after: Entry | None


class Follower:
    def __init__(self, store: Store, hub: Hub, resources: Sequence[str]) -> None:
        self._store, self._hub, self._resources = store, hub, resources
        self._last: dict[str, dict[str, Entry]] = {resource: {} for resource in resources}

    async def differences(self) -> list[Difference]:
        """Waits for a difference to the last look. An object that was replaced is two: one is gone, one is new."""
        while not (differences := self._look()):
            await self._hub.sleep(self._resources)
        return differences

    def _look(self) -> list[Difference]:
        differences: list[Difference] = []
        for resource, last in self._last.items():
            now = self._store.shelf(resource).entries
            changed = [key for key in last if last[key] is not now.get(key)] + [key for key in now if key not in last]
            for key in changed:
                before, after = last.get(key), now.get(key)
                if before and after and before.uid != after.uid:
                    differences.append(Difference(resource, before, None))
                    before = None
                differences.append(Difference(resource, before, after))
            self._last[resource] = dict(now) if changed else last
        return differences
