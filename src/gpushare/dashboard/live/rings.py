"""Small numbers of many things over time: a frame every 15 seconds for an hour, and one every 5 minutes for 48 hours.

Pure. A thing has a slot, and a frame is an array with one number for each slot: so a sample is a copy, and 8,000 GPUs
take 8 bytes each. 0 is always unknown. A frame of 5 minutes has the means of its samples, or their peaks.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

STEP, LONG_STEP = 15.0, 300.0  # seconds
FINE, COARSE = 240, 576  # frames
WHOLE = 65_000  # stands for all of a GPU's memory


class Frame(NamedTuple):
    time: float
    columns: tuple["array[int]", ...]

    def value(self, column: int, slot: int) -> int:
        """0: unknown, or the slot is younger than the frame."""
        values = self.columns[column]
        return values[slot] if slot < len(values) else 0


class Ring:
    """`kinds`: for each column the type of its array, B for a byte and H for two."""

    def __init__(self, kinds: str, *, peaks: bool = False) -> None:
        self.now = tuple(array(kind) for kind in kinds)
        self.fine: deque[Frame] = deque(maxlen=FINE)
        self.coarse: deque[Frame] = deque(maxlen=COARSE)
        self._kinds, self._peaks = kinds, peaks
        self._sums = [array("H" if peaks else "I") for _ in kinds]
        self._known = [array("B") for _ in kinds]
        self._last: float | None = None

    @property
    def slot_bytes(self) -> int:
        """What one slot takes when all frames are there."""
        return sum(values.itemsize for values in self.now) * (FINE + COARSE)

    def clear(self, slot: int) -> None:
        """The slot has another owner from now on, of whom nothing is known."""
        for values in (*self.now, *self._sums, *self._known):
            values.extend([0] * (slot + 1 - len(values)))
            values[slot] = 0

    def set(self, slot: int, figures: Sequence[int]) -> None:
        for values, figure in zip(self.now, figures, strict=True):
            values[slot] = figure

    def turn_back(self, time: float) -> None:
        """The clock was set back to this: frames of what is still to come were made by a wrong one."""
        for frames in (self.fine, self.coarse):
            while frames and frames[-1].time >= time:
                frames.pop()
        self._begin_window()
        self._last = None

    def sample(self, time: float) -> None:
        """What is set now becomes a frame."""
        if self._last is not None and self._last // LONG_STEP != time // LONG_STEP:
            self._close(self._last)
        self._last = time
        self.fine.append(Frame(time, tuple(values[:] for values in self.now)))
        for at, values in enumerate(self.now):
            if self._peaks:
                self._sums[at] = array("H", map(max, self._sums[at], values))
            else:
                self._sums[at] = array("I", map(add, self._sums[at], values))
                self._known[at] = array("B", map(add, self._known[at], map(bool, values)))

    def _close(self, time: float) -> None:
        columns = []
        for kind, sums, known in zip(self._kinds, self._sums, self._known, strict=True):
            pairs = zip(sums, known, strict=True)
            columns.append(array(kind, sums if self._peaks else [total // max(count, 1) for total, count in pairs]))
        self._begin_window()
        self.coarse.append(Frame(time, tuple(columns)))

    def _begin_window(self) -> None:
        """Nothing is known of these 5 minutes yet."""
        for values in (*self._sums, *self._known):
            values[:] = array(values.typecode, bytes(values.itemsize * len(values)))

    def frames(self, seconds: float, now: float) -> list[Frame | float]:
        """Those of the last so many seconds, the oldest first. For more than an hour they are those of 5 minutes, and
        what came after the last of them. A time alone is a gap."""
        fine_only = seconds <= STEP * FINE
        frames = list(self.fine)
        if not fine_only and self.coarse:
            frames = [*self.coarse, *(frame for frame in self.fine if frame.time > self.coarse[-1].time)]
        step, found = (STEP if fine_only else LONG_STEP), list[Frame | float]()
        last: float | None = None
        for frame in frames:
            if not now - seconds < frame.time <= now:
                continue
            if last is not None and frame.time - last > 2.5 * step:
                found.append(last + step)
            found.append(frame)
            last = frame.time
        return found


class Slots:
    """Which slots are taken. One that is given back has a new owner sooner or later."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []

    @property
    def is_any_free(self) -> bool:
        return bool(self._free)

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.count += 1
        return self.count - 1

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


def part(amount: int, total: int) -> int:
    """An amount of memory as it stands in a frame, and back."""
    return min((amount * WHOLE + total // 2) // total, WHOLE) if total > 0 else 0


def amount(part: int, total: int) -> int:
    return (part * total + WHOLE // 2) // WHOLE


def time_of(one: Frame | float) -> float:
    """Of a frame, or of a gap."""
    return one.time if isinstance(one, Frame) else one
