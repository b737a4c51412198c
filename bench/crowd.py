"""A crowd of small pods and one large one, in virtual time: how long does the large one wait?

Pods of 1,000 to 3,000 MiB come to two GPUs of 16,276 MiB and stay for a random time; after a while one comes that asks
15,000. The ledger decides, and the queue is served as kube-scheduler and the wake-ups serve it: by age, and who does
not fit is passed over. Times are mean run times; when pods come, what they ask and how long they run depends on the
seed alone. Used by the figures of `fair`, and by the tests.
"""

import heapq
import random
from typing import NamedTuple

from gpushare.core.facts import names, request
from gpushare.core.facts.kinds import MEMORY
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Refusal, Request, Role, Share
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.patience import Patience
from gpushare.core.scheduling.reach import ANYWHERE

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
SEEDS = 20
TOTAL = 16_276
SMALL = (1_000, 3_000)
LARGE = 15_000
COMES = 20.0  # the large one, when the crowd has long been there
MEAN = 3_600.0  # seconds of a mean run time
FACTS = NodeFacts("gpu-a", "MiB", Pin.PLUGIN, (Gpu(0, "GPU-0", TOTAL), Gpu(1, "GPU-1", TOTAL)))


class Outcome(NamedTuple):
    waited: float | None  # the large pod; None: to the end
    allocated: float  # the share of all memory that was given out, on average
    most_kept: int  # GPUs


class Crowd:
    def __init__(self, load: float, seed: int, patience: float) -> None:
        """`patience`: in mean run times; 0: never."""
        self._random = random.Random(seed)
        self._rate = load * 2 * TOTAL / (sum(SMALL) / 2)
        self._ledger, self._patience = Ledger(), Patience(patience * MEAN)
        self._ledger.set_node(FACTS)
        self._waiting: dict[str, PodFacts] = {}
        self._runs: dict[str, float] = {}
        self._ahead: list[tuple[float, int, PodFacts, bool]] = []  # when, a number, who, and whether it comes or ends
        self._now = self._area = 0.0
        self._used = self._made = self._most_kept = 0
        self._placed_at: float | None = None

    def run(self, until: float) -> Outcome:
        """`until`: in mean run times, or until the large pod is placed if that is 0."""
        large = _pod("large", LARGE)
        self._runs["large"] = 1.0
        heapq.heappush(self._ahead, (COMES, 0, large, True))
        self._next_small()
        while self._ahead[0][0] < until if until else self._placed_at is None:
            self._step()
        waited = self._placed_at - COMES if self._placed_at is not None else None
        return Outcome(waited, self._area / self._now / (2 * TOTAL), self._most_kept)

    def _step(self) -> None:
        when, _, pod, comes = heapq.heappop(self._ahead)
        self._area += self._used * (when - self._now)
        self._now = when
        if comes:
            self._waiting[pod.uid] = pod
            if pod.uid != "large":
                self._next_small()
        else:
            self._ledger.forget(pod.uid)
            self._used -= pod.spec_units
        self._patience.update(self._ledger, self._waiting.values(), ANYWHERE, self._now * MEAN)
        self._most_kept = max(self._most_kept, len(self._ledger.kept()))
        for waiting in list(self._waiting.values()):
            if self._place(waiting):
                self._start(waiting)

    def _next_small(self) -> None:
        self._made += 1
        pod = _pod(f"small-{self._made}", self._random.randint(*SMALL))
        self._runs[pod.uid] = self._random.expovariate(1.0)
        heapq.heappush(self._ahead, (self._now + self._random.expovariate(self._rate), self._made, pod, True))

    def _place(self, pod: PodFacts) -> bool:
        assert isinstance(pod.request, Request)
        if ranking.first(self._ledger, pod.request, pod, [FACTS.name], "binpack") is None:
            return False
        places = self._ledger.reserve(pod, FACTS.name, "binpack")
        if isinstance(places, Refusal):
            return False
        gpu = FACTS.gpus[places[0][0]].index
        self._ledger.confirm(request.bound(pod, FACTS.name, {names.ALIYUN_IDX: str(gpu)}))
        return True

    def _start(self, pod: PodFacts) -> None:
        del self._waiting[pod.uid]
        self._used += pod.spec_units
        if pod.uid == "large":
            self._placed_at = self._now
        self._made += 1
        heapq.heappush(self._ahead, (self._now + self._runs.pop(pod.uid), self._made, pod, False))


def _pod(name: str, units: int) -> PodFacts:
    asked = Request((Share("main", 0, Role.APP, MEMORY, units),), Pin.PLUGIN)
    return PodFacts(name, "crowd", name, asked, unschedulable="0/1 nodes are available", spec_units=units)
