"""What goes wrong, how often and for which requests: the pure half of the fault proxy.

All chance comes from one seeded generator, so a run that failed can be run again. The faults are those of real
clusters: a busy or restarting API server, a load balancer that drops a connection after the request got through, a
watch that hangs.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

# Chosen once per request. The refusals come before the upstream sees anything.
LATENCY: Final = "latency"
CONFLICT: Final = "409"
TOO_MANY: Final = "429"
SERVER_ERROR: Final = "500"
UNAVAILABLE: Final = "503"
LOST_REPLY: Final = "lost-reply"  # executed upstream, then the connection is dropped without an answer
LATE_WRITE: Final = "late-write"  # the connection is dropped first, the request is executed a little later
# Chosen once per watch.
WATCH_CUT: Final = "watch-cut"
WATCH_SILENT: Final = "watch-silent"  # stays open and passes nothing more
# Chosen for each event of a watch.
WATCH_REPEAT: Final = "watch-repeat"  # an earlier event is sent again
WATCH_LATE: Final = "watch-late"  # held back, and sent after later ones

PASSED: Final = "passed"
REFUSALS: Final = (CONFLICT, TOO_MANY, SERVER_ERROR, UNAVAILABLE)
PER_EVENT: Final = (WATCH_REPEAT, WATCH_LATE)
_READ: Final = (LATENCY, TOO_MANY, SERVER_ERROR, UNAVAILABLE, LOST_REPLY)
_WRITE: Final = (LATENCY, CONFLICT, TOO_MANY, SERVER_ERROR, UNAVAILABLE, LOST_REPLY, LATE_WRITE)
_WATCH: Final = (LATENCY, TOO_MANY, SERVER_ERROR, UNAVAILABLE, WATCH_CUT, WATCH_SILENT)
KINDS: Final = tuple(dict.fromkeys((*_WRITE, *_WATCH, *PER_EVENT)))

Range = tuple[float, float]


def everything(method: str, path: str) -> bool:
    return True


def writes(method: str, path: str) -> bool:
    return method != "GET"


@dataclass(frozen=True)
class Plan:
    """`rates`: a probability per kind of fault, for a request, a watch or an event as above. Ranges: a random value."""

    rates: Mapping[str, float] = field(default_factory=dict)
    eligible: Callable[[str, str], bool] = everything  # method, path
    latency: Range = (0.01, 0.1)
    retry_after: int = 1
    late_write: Range = (0.05, 0.2)
    watch_events: tuple[int, int] = (0, 20)  # a watch is cut or falls silent after so many events…
    watch_seconds: Range = (0.1, 2.0)  # …or after so long, whichever is first
    held_events: tuple[int, int] = (1, 3)  # a late event comes after so many later ones…
    held_seconds: float = 0.5  # …but not later than this

    def __post_init__(self) -> None:
        for kind, rate in self.rates.items():
            if kind not in KINDS or not 0 <= rate <= 1:
                raise ValueError(f"no such fault: {kind}={rate}. Rates are 0 to 1, for {', '.join(KINDS)}")
        for kinds in (_READ, _WRITE, _WATCH):
            if sum(self.rates.get(kind, 0) for kind in kinds) > 1 + 1e-9:
                raise ValueError(f"the rates of {', '.join(kinds)} add up to more than 1: one request has one fault")

    def choose(self, dice: random.Random, method: str, path: str, watch: bool) -> str | None:
        """The fault of this request. One random number per request, so that a run can be repeated."""
        throw = dice.random()
        if not self.eligible(method, path):
            return None
        for kind in _WATCH if watch else _READ if method == "GET" else _WRITE:
            throw -= self.rates.get(kind, 0)
            if throw < 0:
                return kind
        return None


class Disorder:
    """Repeats and delays the events of one watch.

    Events that are held back are sent before a bookmark and before the proxy ends the stream. Otherwise a client that
    resumes from a later version could never get them, and no real server does that.
    """

    def __init__(self, dice: random.Random, counts: Counter[str]) -> None:
        self._dice = dice
        self._counts = counts
        self._sent: deque[bytes] = deque(maxlen=16)
        self._held: list[tuple[bytes, int, float]] = []  # event, how many go first, latest time

    def feed(self, line: bytes, plan: Plan, now: float) -> list[bytes]:
        """The lines to send after this one arrived."""
        if line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            return [*self.flush(), line]
        if self._dice.random() < plan.rates.get(WATCH_LATE, 0):
            self._counts[WATCH_LATE] += 1
            self._held.append((line, self._dice.randint(*plan.held_events), now + plan.held_seconds))
            return []
        out = [line]
        self._held = [(held, count - 1, due) for held, count, due in self._held]
        out += self._take(lambda count, due: count <= 0)
        if self._sent and self._dice.random() < plan.rates.get(WATCH_REPEAT, 0):
            self._counts[WATCH_REPEAT] += 1
            out.append(self._dice.choice(self._sent))
        self._sent.append(line)
        return out

    def due(self) -> float | None:
        """When the next event that is held back must be sent at the latest."""
        return min((due for _, _, due in self._held), default=None)

    def release(self, now: float) -> list[bytes]:
        return self._take(lambda count, due: due <= now)

    def flush(self) -> list[bytes]:
        return self._take(lambda count, due: True)

    def _take(self, ripe: Callable[[int, float], bool]) -> list[bytes]:
        taken = [held for held, count, due in self._held if ripe(count, due)]
        self._held = [item for item in self._held if not ripe(item[1], item[2])]
        return taken
