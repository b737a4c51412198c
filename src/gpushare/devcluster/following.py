"""What changed in the store since somebody last looked: how controllers and kubelet follow it, without HTTP.

They run in the server's own process and event loop, so that the store is their cache, and never an old one. What
happened in between two looks is seen as one change, as is right for those who only ask what is and what should be.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpushare.devcluster.apiserver.store import Entry, Store
from gpushare.devcluster.apiserver.watching import Hub


@dataclass(frozen=True)
class Difference:
    """One object that is not as it was. `before` is None if it is new, `after` if it is gone."""

    resource: str
    before: Entry | None
    after: Entry | None


class Follower:
    def __init__(self, store: Store, hub: Hub, resources: Sequence[str]) -> None:
        self._store, self._hub, self._resources = store, hub, resources
        self._seen: dict[str, dict[str, Entry]] = {resource: {} for resource in resources}

    async def differences(self) -> list[Difference]:
        """Waits until something is not as it was at the last look. An object that was replaced goes, then comes."""
        while not (found := self._look()):
            await self._hub.sleep(self._resources)
        return found

    def _look(self) -> list[Difference]:
        found: list[Difference] = []
        for resource, seen in self._seen.items():
            now = self._store.shelf(resource).entries
            changed = [key for key in seen if seen[key] is not now.get(key)] + [key for key in now if key not in seen]
            for key in changed:
                before, after = seen.get(key), now.get(key)
                if before and after and before.uid != after.uid:
                    found.append(Difference(resource, before, None))
                    before = None
                found.append(Difference(resource, before, after))
            self._seen[resource] = dict(now) if changed else seen
        return found
