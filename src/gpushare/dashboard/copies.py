"""A copy of the cluster for work in a thread, while the live one goes on changing. It takes a second to make with many
pods, so those who ask at about the same time share one."""

import time
from collections.abc import Callable
from typing import Final

from gpushare.dashboard.live.cluster import Live
from gpushare.view.snapshot import Snapshot

KEPT_SECONDS: Final = 1.0


class Copies:
    def __init__(self, live: Live, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._kept: tuple[int, float, Snapshot] | None = None  # the version, and when it was made

    def shared(self) -> Callable[[], Snapshot]:
        """Makes one when it is called, in the thread, unless there is one that is as good. Its ledger is not to be
        changed."""
        version, asked, fresh = self._live.version, self._clock(), self._live.isolating()
        now, doing = self._live.snapshot().now, dict(self._live.doing.by_node)

        def made() -> Snapshot:
            kept = self._kept
            if kept is None or (kept[0] != version and asked - kept[1] >= KEPT_SECONDS):
                kept = self._kept = version, asked, fresh()
            there = kept[2]
            return Snapshot(there.nodes, there.pods, there.ledger, there.asking, now, doing)

        return made
