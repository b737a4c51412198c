"""Numbers instead of names: everybody gets the same stream, and not everybody may read every name.

A number means nothing outside of this process. Whoever may read a pod learns its name with its number elsewhere. Pods
are numbered by the GPU that they were first seen on: then the differences between neighbours are small numbers, however
many pods came and went, and those take few bytes.
"""

from collections.abc import Mapping

PODS = 1024  # of one GPU; numbers of others are from `OTHERS` on
OTHERS = 1 << 40


class Numbers:
    def __init__(self) -> None:
        self._pods: dict[str, int] = {}  # by uid
        self._taken: dict[int, set[int]] = {}  # by GPU
        self._namespaces: dict[str, int] = {}
        self._next_other = OTHERS

    def pod(self, uid: str, gpu: int | None = None) -> int:
        """The number of a pod. `gpu`: that of a GPU that it has, if it has one."""
        number = self._pods.get(uid)
        if number is None:
            number = self._pods[uid] = self._new(gpu)
        return number

    @property
    def namespaces(self) -> Mapping[str, int]:
        """All that have a number."""
        return self._namespaces

    def namespace(self, name: str) -> int:
        return self._namespaces.setdefault(name, len(self._namespaces))

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        number = self._pods.pop(uid, OTHERS)
        if number < OTHERS:
            self._taken[number // PODS].discard(number % PODS)

    def _new(self, gpu: int | None) -> int:
        taken = self._taken.setdefault(gpu, set()) if gpu is not None else set()
        if gpu is None or len(taken) == PODS:
            self._next_other += 1
            return self._next_other - 1
        place = next(place for place in range(PODS) if place not in taken)
        taken.add(place)
        return gpu * PODS + place


class Table:
    """Words that many rows share, each with its place in a list."""

    def __init__(self, *first: str) -> None:
        self._places = {word: place for place, word in enumerate(first)}

    def place(self, word: str) -> int:
        return self._places.setdefault(word, len(self._places))

    def words(self) -> list[str]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)
