"""How fast this machine is just now: a fixed piece of Python and msgspec work, timed again and again during a run.

CPU time is not the same everywhere: the same work takes 1.7 times as long while the other core is busy, or on an older
machine. So a figure is judged in reference time: what it would be if the yardstick took `REFERENCE_MS`. That is the
fastest of three minutes on the machine where the budgets were last looked at (2 cores of an AMD EPYC, Python 3.11):
`python -m bench.yardstick` measures it.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator

import msgspec

REFERENCE_MS = 1.0
PIECES = 3  # of which the fastest counts: an interrupt only adds
EVERY = 0.05  # seconds at least between two looks
PODS = 1_000


class _Pod(msgspec.Struct):
    name: str
    uid: str
    labels: dict[str, str]
    amounts: list[int]


_pods = msgspec.json.Decoder(list[_Pod])
_BODY = msgspec.json.encode(
    [_Pod(f"pod-{i:05d}", f"uid-{i}", {"app": f"app-{i % 7}", "tier": "x"}, [i, 2 * i, 3 * i]) for i in range(PODS)]
)


def _work() -> bytes:
    """Decode, group, sort, encode: what the extender does with a question, without the extender."""
    pods = _pods.decode(_BODY)
    groups: dict[tuple[str, int], list[str]] = {}
    for pod in pods:
        groups.setdefault((pod.labels["app"], sum(pod.amounts) % 97), []).append(pod.name)
    order = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return msgspec.json.encode([(app, rest, ",".join(names)) for (app, rest), names in order])


def measure() -> float:
    """How many times the reference's time the work takes now."""
    spent = []
    gc.disable()  # a collection would count what else this process has
    for _ in range(PIECES):
        begun = time.thread_time()
        _work()
        spent.append(time.thread_time() - begun)
    gc.enable()
    return min(spent) * 1000 / REFERENCE_MS


class Yardstick:
    """Looks at the machine whenever a benchmark has a moment between two rounds."""

    def __init__(self) -> None:
        self._looks: list[float] = []
        self._last: list[float] = []
        self._looked_at = 0.0

    def look(self) -> None:
        if time.monotonic() - self._looked_at >= EVERY:
            self._looks.append(measure())
            self._looked_at = time.monotonic()

    def take(self) -> list[float]:
        """All looks since the last time; if there was none, the figure comes of the same rounds as the last one."""
        if self._looks:
            self._last, self._looks = self._looks, []
        return self._last

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Four times a second, while another process does what is measured."""

        async def look_on() -> None:
            while True:
                self.look()
                await asyncio.sleep(0.25)

        task = asyncio.create_task(look_on())
        try:
            yield
        finally:
            task.cancel()


HERE = Yardstick()  # one machine, one yardstick


if __name__ == "__main__":
    ends, best = time.monotonic() + 180, measure()
    while time.monotonic() < ends:
        best = min(best, measure())
        time.sleep(EVERY)
    print(f"{best * REFERENCE_MS:.3f} ms")
