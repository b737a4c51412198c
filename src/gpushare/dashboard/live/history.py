"""What GPUs, shares and the cluster did in the last 48 hours, in memory. Pure: time comes in as an argument.

Memory is kept as a fraction of the GPU's total in two bytes, so amounts are right to a MiB or two. What is older than
an hour is by 5 minutes: of GPUs the mean, of shares the peak of what they use. GPUs and pods that are gone are known
for 48 hours, pods for less if many come and go: see `MOST_BYTES`. The cluster as a whole is in `sums`.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gpushare.core.facts.model import PodFacts
from gpushare.dashboard.live.columns import UNKNOWN, Column, Figures, Row, Share
from gpushare.dashboard.live.rings import LONG_STEP, STEP, WHOLE, Frame, Ring, Slots, amount, part, time_of
from gpushare.dashboard.live.sums import Cluster, Sums

MOST_BYTES = 95_000_000  # for all rings; a cluster whose GPUs and shares of now need more gets more
RANGES = {"1h": 3600.0, "6h": 21_600.0, "48h": 172_800.0, "7d": 604_800.0}
KEPT_SECONDS = RANGES["48h"]
NOT_SO_LONG = "what is older than 48 hours needs --prometheus"
BEGUN = "nothing is known of the time before this dashboard was started"
# Of shares 0 is: not there. So a peak is the larger number.
_THERE = 1  # what it uses is unknown
_USED, _GRANTED, _UTIL, _TEMP, _POWER = range(5)
_GPU_KINDS = "HHBBH"
BLOCK_SECONDS = 4 * 3600.0  # peaks of 48 hours are kept in blocks
BLOCKS = round(KEPT_SECONDS / BLOCK_SECONDS)


class PastShare(msgspec.Struct):
    """A pod on a GPU. `gone`: since when it is not there; None: it is."""

    slot: int
    pod: PodFacts
    number: int
    granted: int
    since: float
    gone: float | None = None


class PastGpu(msgspec.Struct):
    slot: int
    total: int
    since: float
    gone: float | None = None
    shares: dict[str, PastShare] = {}  # by uid, also those that are gone


class History:
    step = STEP

    def __init__(self) -> None:
        self._gpus: dict[tuple[str, str], PastGpu] = {}  # by node and key
        self._nodes: dict[str, list[tuple[str, str]]] = {}
        self._gpu_ring, self._share_ring = Ring(_GPU_KINDS), Ring("H", peaks=True)
        self._gpu_slots, self._share_slots = Slots(), Slots()
        self._gone: deque[tuple[float, PastGpu, str]] = deque()  # shares by uid, the first that went first
        self._sums = Sums()
        self._blocks: deque[array[int]] = deque([array("H")], maxlen=BLOCKS + 1)
        self._block_begun: float | None = None
        self._peaks: dict[str, int | None] | None = None
        self._sampled: float | None = None

    @property
    def begun(self) -> float | None:
        """When the oldest frame was made."""
        times = [frames[0].time for frames in (self._gpu_ring.coarse, self._gpu_ring.fine) if frames]
        return min(times, default=None)

    # What happens

    def see(self, row: Row, now: float) -> None:
        """How a node is from now on."""
        keys = [(row.name, gpu.key) for gpu in row.gpus]
        for key in self._nodes.get(row.name, ()):
            if key not in keys:
                self._lose(key, now)
        self._nodes[row.name] = keys
        for at, (key, column) in enumerate(zip(keys, row.gpus, strict=True)):
            gpu = self._gpu(key, column, now)
            self._gpu_ring.set(gpu.slot, _gpu_figures(row.figures[at], column.total))
            self._see_shares(gpu, row.pods[at], row.shares[at], row.used[at], now)

    def forget_node(self, name: str, now: float) -> None:
        """The node is gone. What it did stays known."""
        for key in self._nodes.pop(name, ()):
            self._lose(key, now)

    def sample(self, now: float, cluster: Cluster) -> None:
        """Every `step` seconds."""
        if self._sampled is not None and now < self._sampled:
            self._turn_back(now)
        self._sampled = now
        self._gpu_ring.sample(now)
        self._share_ring.sample(now)
        self._sums.sample(now, cluster)
        self._remember_peaks(now)
        self._forget_old(now)

    # What is asked

    def gpu(self, node: str, key: str, range_: str, now: float) -> dict[str, Any]:
        """Columns for one GPU and the shares on it. `key`: its UUID, or its index where it has none."""
        gpu = self._gpus.get((node, key))
        frames = self._gpu_ring.frames(min(RANGES[range_], KEPT_SECONDS), now) if gpu is not None else []
        frames = [one for one in frames if gpu is not None and time_of(one) >= gpu.since]
        total, slot = (gpu.total, gpu.slot) if gpu is not None else (0, 0)

        def column(at: int, read: Callable[[int], int]) -> list[int | None]:
            values = [one.value(at, slot) if isinstance(one, Frame) else 0 for one in frames]
            return [read(value) if value else None for value in values]

        def memory(value: int) -> int:
            return amount(value - 1, total)

        times = [time_of(one) for one in frames]
        return {
            "times": [round(time, 1) for time in times],
            "total": [total if isinstance(one, Frame) else None for one in frames],
            "granted": column(_GRANTED, memory),
            "used": column(_USED, memory),
            "util": column(_UTIL, _one_less),
            "temp": column(_TEMP, _one_less),
            "power": column(_POWER, _one_less),
            "shares": self._share_columns(gpu, range_, now, times) if gpu is not None else [],
            **self._about(range_, now),
        }

    def cluster(self, range_: str, now: float) -> dict[str, Any]:
        """Columns of the sums of all GPUs, and of the pods that waited, by code."""
        return {**self._sums.columns(min(RANGES[range_], KEPT_SECONDS), now), **self._about(range_, now)}

    def peaks(self) -> dict[str, int | None]:
        """By uid of each pod that has a share: the most that it used in the last 48 hours, or since it is known; on
        several GPUs the sum. None: that is unknown."""
        if self._peaks is None:
            longest = max(map(len, self._blocks))
            padded = [
                block if len(block) == longest else [*block, *[0] * (longest - len(block))] for block in self._blocks
            ]
            most = list(map(max, *padded)) if len(padded) > 1 else list(padded[0])
            self._peaks = {}
            for gpu in self._gpus.values():
                for uid, share in gpu.shares.items():
                    if share.gone is None:
                        value = most[share.slot] if share.slot < len(most) else 0
                        known = amount(value - 1 - _THERE, gpu.total) if value > _THERE else None
                        before = self._peaks.get(uid, 0)
                        self._peaks[uid] = known + before if known is not None and before is not None else None
        return self._peaks

    def over_for(self, node: str, key: str, uid: str, now: float) -> float | None:
        """For how many seconds a pod has used more of a GPU than it was given; None: it does not."""
        gpu = self._gpus.get((node, key))
        share = gpu.shares.get(uid) if gpu is not None else None
        if gpu is None or share is None or share.gone is not None:
            return None
        since: float | None = None
        for one in reversed(self._share_ring.frames(KEPT_SECONDS, now)):
            value = one.value(0, share.slot) if isinstance(one, Frame) and one.time >= share.since else 0
            if value <= _THERE or amount(value - 1 - _THERE, gpu.total) <= share.granted + gpu.total // WHOLE + 1:
                break
            since = time_of(one)
        return now - since if since is not None else None

    def _about(self, range_: str, now: float) -> dict[str, Any]:
        begun = self.begun
        note = NOT_SO_LONG if RANGES[range_] > KEPT_SECONDS else ""
        if not note and begun is not None and begun > now - RANGES[range_] + LONG_STEP:
            note = BEGUN
        return {"source": "memory", "from": round(begun, 1) if begun is not None else None, "note": note}

    def _share_columns(self, gpu: PastGpu, range_: str, now: float, times: Sequence[float]) -> list[dict[str, Any]]:
        frames = self._share_ring.frames(min(RANGES[range_], KEPT_SECONDS), now)[-len(times) :] if times else []
        found = []
        for uid, share in gpu.shares.items():
            values = [
                one.value(0, share.slot) if isinstance(one, Frame) and one.time >= share.since else 0 for one in frames
            ]
            if any(values):
                used = [amount(value - 1 - _THERE, gpu.total) if value > _THERE else None for value in values]
                granted = [share.granted if value else None for value in values]
                names = {"namespace": share.pod.namespace, "pod": share.pod.name, "uid": uid, "number": share.number}
                found.append({**names, "granted": granted, "used": used})
        return found

    # Slots

    def _gpu(self, key: tuple[str, str], column: Column, now: float) -> PastGpu:
        gpu = self._gpus.get(key)
        if gpu is not None and gpu.total != column.total:
            self._lose(key, now)
            self._drop_gpu(key)
            gpu = None
        if gpu is None:
            gpu = self._gpus[key] = PastGpu(self._gpu_slots.take(), column.total, now, shares={})
            self._gpu_ring.clear(gpu.slot)
        gpu.gone = None
        return gpu

    def _see_shares(
        self, gpu: PastGpu, pods: Sequence[PodFacts], shares: Sequence[Share], used: Sequence[int], now: float
    ) -> None:
        there = self._share_ring.now[0]
        for pod, (number, _, granted), uses in zip(pods, shares, used, strict=True):
            share = gpu.shares.get(pod.uid)
            if share is None:
                share = gpu.shares[pod.uid] = PastShare(self._share_slot(), pod, number, granted, now)
                self._share_ring.clear(share.slot)
                for block in self._blocks:
                    if share.slot < len(block):
                        block[share.slot] = 0
                self._peaks = None
            share.gone, share.granted, share.pod, share.number = None, granted, pod, number
            there[share.slot] = _THERE if uses == UNKNOWN else 1 + _THERE + part(uses, gpu.total)
        if len(gpu.shares) > len(pods):
            uids = {pod.uid for pod in pods}
            for uid, share in gpu.shares.items():
                if share.gone is None and uid not in uids:
                    self._lose_share(gpu, uid, share, now)

    def _share_slot(self) -> int:
        bound = (MOST_BYTES - self._gpu_slots.count * self._gpu_ring.slot_bytes) // self._share_ring.slot_bytes
        while not self._share_slots.is_any_free and self._share_slots.count >= bound and self._gone:
            self._drop_oldest()
        return self._share_slots.take()

    def _lose(self, key: tuple[str, str], now: float) -> None:
        gpu = self._gpus[key]
        gpu.gone = now
        self._gpu_ring.set(gpu.slot, (0,) * len(_GPU_KINDS))
        for uid, share in gpu.shares.items():
            if share.gone is None:
                self._lose_share(gpu, uid, share, now)

    def _lose_share(self, gpu: PastGpu, uid: str, share: PastShare, now: float) -> None:
        share.gone = now
        self._share_ring.now[0][share.slot] = 0
        self._gone.append((now, gpu, uid))
        self._peaks = None

    def _forget_old(self, now: float) -> None:
        while self._gone and self._gone[0][0] < now - KEPT_SECONDS:
            self._drop_oldest()
        for key in [key for key, gpu in self._gpus.items() if gpu.gone is not None and gpu.gone < now - KEPT_SECONDS]:
            self._drop_gpu(key)

    def _turn_back(self, now: float) -> None:
        """The clock was set back: whatever it said was later than now was at most now."""
        for kept in (self._gpu_ring, self._share_ring, self._sums):
            kept.turn_back(now)
        self._gone = deque((min(went, now), gpu, uid) for went, gpu, uid in self._gone)
        for gpu in self._gpus.values():
            everything: list[PastGpu | PastShare] = [gpu, *gpu.shares.values()]
            for one in everything:
                one.since = min(one.since, now)
                one.gone = min(one.gone, now) if one.gone is not None else None

    def _drop_oldest(self) -> None:
        """Of the shares that are gone. One that came back is still there."""
        went, gpu, uid = self._gone.popleft()
        share = gpu.shares.get(uid)
        if share is not None and share.gone == went:
            del gpu.shares[uid]
            self._share_slots.give_back(share.slot)

    def _drop_gpu(self, key: tuple[str, str]) -> None:
        gpu = self._gpus.pop(key)
        for share in gpu.shares.values():
            self._share_slots.give_back(share.slot)
        gpu.shares.clear()
        self._gpu_slots.give_back(gpu.slot)

    def _remember_peaks(self, now: float) -> None:
        current = self._share_ring.now[0]
        if self._block_begun is None or not 0 <= now - self._block_begun < BLOCK_SECONDS:
            self._block_begun = now
            self._blocks.append(array("H"))
        last = self._blocks[-1]
        last.extend([0] * (len(current) - len(last)))
        self._blocks[-1] = array("H", map(max, last, current))
        self._peaks = None


def _gpu_figures(figures: Figures, total: int) -> tuple[int, ...]:
    """As they stand in a frame: one more than they are, because 0 is unknown."""
    return (
        0 if figures.used < 0 else 1 + part(figures.used, total),
        0 if figures.granted < 0 else 1 + part(figures.granted, total),
        min(figures.util + 1, 255),
        min(figures.temp + 1, 255),
        min(figures.power + 1, 65_535),
    )


def _one_less(value: int) -> int:
    return value - 1
