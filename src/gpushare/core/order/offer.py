"""The nodes that a scheduler offers for a pod.

A scheduler names thousands of nodes at each call, and the best of a kept order is nearly always among them. So names
are looked up one by one, and only after some of that they are made a set. Others may answer in a cheaper way: the wire
looks into the bytes that came, a simulator at what a node has left.
"""

from collections.abc import Collection, Iterable, Sequence


class Offer:
    look_ups = 1  # so many are answered without a set, which costs as much

    def __init__(self, names: Sequence[str]) -> None:
        self._names: Sequence[str] | None = names
        self._set: frozenset[str] | None = None
        self._look_ups = 0

    @property
    def names(self) -> Sequence[str]:
        """All of them, in the order in which they came."""
        if self._names is None:
            self._names = self._decoded()
        return self._names

    def __contains__(self, node: str) -> bool:
        if self._set is not None:
            return node in self._set
        self._look_ups += 1
        if self._look_ups > self.look_ups:
            self._set = frozenset(self.names)
            return node in self._set
        return self._has(node)

    def of_these(self, nodes: Iterable[str]) -> list[str]:
        """Those of many nodes that are offered."""
        named = self._set = self._set if self._set is not None else frozenset(self.names)
        return [node for node in nodes if node in named]

    def few(self, most: int) -> Collection[str] | None:
        """The names, if there are at most so many. An offer that cannot tell says None."""
        return self.names if len(self.names) <= most else None

    def _decoded(self) -> Sequence[str]:
        """The names of an offer that was not made of names."""
        raise NotImplementedError

    def _has(self, node: str) -> bool:
        return node in self.names


def of(offered: "Offer | Sequence[str]") -> Offer:
    """A plain list of names is an offer, too."""
    return offered if isinstance(offered, Offer) else Offer(offered)
