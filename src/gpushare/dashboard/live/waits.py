"""How many pods wait, and for which reasons. The reasons cost time: equal requests share one, and a turn is short.

After a change every reason may be another one. They are looked at again in turns, those first that were never looked at
and then the oldest, so that the event loop is not held up. Until then the last reason counts.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from gpushare.core.facts import intree
from gpushare.core.facts.model import Refusal
from gpushare.core.ledger.ledger import Ledger
from gpushare.dashboard.live.cluster import Live
from gpushare.view import sold, wording
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import waiting
from gpushare.view.why.waiting import Waits

TURN_SECONDS = 0.02  # for the reasons in one tick
REST_SECONDS = 5.0  # after a turn that took longer

Group = tuple[object, ...]


class Counts(msgspec.Struct, frozen=True):
    """`codes` may have fewer pods than `count`: those whose reason is not known yet are missing."""

    count: int = 0
    oldest: float = -1  # when the one that waits longest was created, in seconds since 1970; -1: none waits
    codes: dict[str, int] = {}


class Waiting:
    def __init__(self, live: Live, clock: Callable[[], float]) -> None:
        self._live, self._clock = live, clock
        self._seen = -1  # the version of the cluster that was counted last
        self._groups: dict[Group, list[Waits]] = {}
        self._known: dict[Group, tuple[int, str]] = {}  # the version it was looked at, and its code
        self._oldest = -1.0
        self._rests_until = 0.0

    def counts(self) -> Counts:
        """As far as it is known in one turn."""
        version = self._live.version
        if version != self._seen:
            self._seen = version
            self._group(self._live.waiting())
        if self._clock() >= self._rests_until:
            self._look(version)
        codes: Counter[str] = Counter()
        for group, pods in self._groups.items():
            if group in self._known:
                codes[self._known[group][1]] += len(pods)
        return Counts(sum(map(len, self._groups.values())), self._oldest, dict(sorted(codes.items())))

    def _group(self, cluster: Snapshot) -> None:
        groups: dict[Group, list[Waits]] = {}
        oldest = ""
        for pod in waiting.who(cluster):
            groups.setdefault(_group_of(cluster.ledger, pod), []).append(pod)
            created = (pod.metadata.creation_timestamp or "") if isinstance(pod, intree.Pod) else pod.created
            oldest = min(oldest or created, created)
        self._groups = groups
        self._oldest = (wording.timestamp(oldest) or -1.0) if groups else -1.0
        self._known = {group: known for group, known in self._known.items() if group in groups}

    def _look(self, version: int) -> None:
        """Those first that were never looked at, then the oldest, until the turn is over."""
        old = [group for group in self._groups if self._known.get(group, (-1, ""))[0] < version]
        if not old:
            return
        begun, cluster = self._clock(), self._live.waiting()
        for group in sorted(old, key=lambda group: self._known.get(group, (-1, ""))[0]):
            pod = self._groups[group][0]
            self._known[group] = version, waiting.pods(cluster, [pod])[0].answer.code
            spent = self._clock() - begun
            if spent >= TURN_SECONDS:
                self._rests_until = self._clock() + (REST_SECONDS if spent >= 2 * TURN_SECONDS else 0.0)
                return


def _group_of(ledger: Ledger, pod: Waits) -> Group:
    """Pods of one group wait for the same."""
    if isinstance(pod, intree.Pod):
        return "by count", *sold.asked(pod).items()
    if isinstance(pod.request, Refusal):
        return "invalid", pod.request.code
    return waiting.key(ledger, pod)
