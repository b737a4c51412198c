"""Which devices kubelet should take for a container: replicas spread or packed, whole GPUs by how they are connected.

Pure. It never fails: an error would reject the pod, and a short answer is filled up by kubelet. Devices that are not
known here, such as those of a lost GPU, are not preferred, and those that kubelet insists on are in every answer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from gpushare.gpu.device import Link
from gpushare.node.nvidia.rules import devices
from gpushare.node.nvidia.rules.devices import Gpu

EXACT: Final = 8  # GPUs to choose from: all choices are compared; of more, the next best is taken again and again
PER_NVLINK: Final = 100
BY_LEVEL: Final = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}  # PCIe: the nearer, the better
SAME_NUMA: Final = 1

Pair = frozenset[str]
Scores = Mapping[Pair, int]


def scores(gpus: Iterable[Gpu], links: Iterable[Link]) -> dict[Pair, int]:
    """How well each two GPUs are connected: NVLinks first, then PCIe, then NUMA."""
    made = {
        frozenset((one.uuid, other.uuid)): SAME_NUMA if one.numa is not None and one.numa == other.numa else 0
        for one, other in combinations(gpus, 2)
    }
    for link in links:
        pair = frozenset((link.one, link.other))
        if pair in made:
            made[pair] += PER_NVLINK * link.nvlinks + (BY_LEVEL.get(link.level, 0) if link.level is not None else 0)
    return made


def replicas(
    known: Mapping[str, int], available: Sequence[str], must: Sequence[str], size: int, *, packed: bool
) -> list[str]:
    """`known`: how many replicas each GPU has, by uuid. The next one is of the GPU with the fewest replicas in use, or
    the most if `packed`; if several have as many, of the one picked least often for this container."""
    free: dict[str, list[str]] = {}
    for name in sorted(set(available) - set(must), key=_order):
        if devices.uuid(name) in known:
            free.setdefault(devices.uuid(name), []).append(name)
    used = {gpu: known[gpu] - len(names) for gpu, names in free.items()}
    picked, chosen = Counter(map(devices.uuid, must)), list(must)
    while free and len(chosen) < size:
        gpu = min(free, key=lambda gpu: (-used[gpu] if packed else used[gpu], picked[gpu]))
        chosen.append(free[gpu].pop(0))
        used[gpu] += 1
        picked[gpu] += 1
        if not free[gpu]:
            del free[gpu]
    return chosen


def whole(known: Sequence[str], available: Sequence[str], must: Sequence[str], size: int, scores: Scores) -> list[str]:
    """GPUs that are connected best. If several sets are as good, the one that leaves the others connected best."""
    free = [gpu for gpu in known if gpu in set(available) - set(must)]
    missing = min(max(size - len(must), 0), len(free))

    def score(gpus: Iterable[str]) -> int:
        return sum(scores.get(frozenset(pair), 0) for pair in combinations(gpus, 2))

    choose = _exactly if len(free) <= EXACT else _greedily
    return [*must, *choose(free, list(must), missing, score)]


def _exactly(free: list[str], must: list[str], missing: int, score: Callable[[Iterable[str]], int]) -> Sequence[str]:
    def worth(chosen: Sequence[str]) -> tuple[int, int]:
        return score([*must, *chosen]), score([gpu for gpu in free if gpu not in chosen])

    return max(combinations(free, missing), key=worth)  # of equal ones the first


def _greedily(free: list[str], must: list[str], missing: int, score: Callable[[Iterable[str]], int]) -> list[str]:
    def gain(gpu: str, to: Sequence[str]) -> int:
        return sum(score((gpu, other)) for other in to)

    chosen: list[str] = []
    if not must and missing > 1:
        chosen += max(combinations(free, 2), key=score)
    while len(chosen) < missing:
        rest = [gpu for gpu in free if gpu not in chosen]
        chosen.append(max(rest, key=lambda gpu: (gain(gpu, [*must, *chosen]), -gain(gpu, rest))))
    return chosen


def _order(name: str) -> tuple[str, int, str]:
    number = devices.number(name)
    return devices.uuid(name), -1 if number is None else number, name
