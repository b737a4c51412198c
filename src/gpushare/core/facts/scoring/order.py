"""Which GPUs of a node a pod should get by points, and what they are worth together.

Two GPUs with an NVLink between them are worth more to a pod that asks for several: again and again the best linked
pair, or the two best GPUs, is taken, whichever is worth more. An odd one is the best of the rest.
"""

from collections.abc import Iterable, Sequence

from gpushare.core.facts.model import Data, Gpu
from gpushare.core.facts.scoring.keti import rounded


class Order(Data, frozen=True):
    """The points of each GPU of a node, by position, and which of them are linked."""

    points: tuple[int, ...]
    links: tuple[tuple[int, int], ...] = ()
    percent: int = 0  # so much more a linked pair is worth

    def first(self, able: Sequence[int], gpus: int) -> tuple[int, ...]:
        """So many GPUs of those that are able, which are ordered by points."""
        return self._picked(able, gpus)[0]

    def worth(self, chosen: Iterable[int]) -> int:
        """Of GPUs that a pod gets: the mean of their points."""
        gpus = sorted(set(chosen), key=lambda gpu: -self.points[gpu])
        return rounded(self._picked(gpus, len(gpus))[1] / len(gpus)) if gpus else 0

    def _picked(self, able: Sequence[int], gpus: int) -> tuple[tuple[int, ...], float]:
        if not self.links:
            return tuple(able[:gpus]), float(sum([self.points[gpu] for gpu in able[:gpus]]))
        left, chosen, worth = list(able), list[int](), 0.0
        while left and len(chosen) < gpus:
            best = left[: min(2, gpus - len(chosen))]
            pair = self._best_pair(left) if len(best) == 2 else None
            linked = pair is not None and self._pair(pair) >= self._mean(best)
            taken = pair if pair is not None and linked else best
            worth += 2 * self._pair(taken) if linked else sum([self.points[gpu] for gpu in taken])
            chosen += taken
            left = [gpu for gpu in left if gpu not in taken]
        return tuple(chosen), worth

    def _best_pair(self, left: Sequence[int]) -> tuple[int, ...] | None:
        there = set(left)
        pairs = [pair for pair in self.links if there.issuperset(pair)]
        return max(pairs, key=self._mean, default=None)

    def _pair(self, pair: Sequence[int]) -> int:
        return rounded(self._mean(pair) * (1 + self.percent / 100))

    def _mean(self, gpus: Sequence[int]) -> float:
        return sum([self.points[gpu] for gpu in gpus]) / len(gpus)


def links(gpus: Sequence[Gpu]) -> tuple[tuple[int, int], ...]:
    """Each two GPUs of a node with NVLinks between them, by position."""
    position = {gpu.uuid: i for i, gpu in enumerate(gpus) if gpu.uuid}
    found = {
        (min(i, position[other]), max(i, position[other]))
        for i, gpu in enumerate(gpus)
        for other, lanes in gpu.links
        if lanes > 0 and position.get(other, i) != i
    }
    return tuple(sorted(found))
