"""CPU and memory of nodes, and what pods ask of it: by pod, whether it uses GPUs or not.

kube-scheduler refuses by these totals, not we. Policies that pack nodes look at what is left.
"""

from collections.abc import KeysView, Sequence

from gpushare.core.facts.packing.model import UNKNOWN


class Supplies:
    def __init__(self) -> None:
        self._offered: dict[str, tuple[int, int]] = {}  # CPU in thousandths and MiB, by node
        self._used: dict[str, list[int]] = {}  # the same
        self._uses: dict[str, tuple[str, int, int]] = {}  # by uid: its node, and the same

    def offer(self, node: str, cpu: int, memory: int) -> bool:
        """What a node has for pods. Returns whether that is news."""
        known, self._offered[node] = self._offered.get(node), (cpu, memory)
        return known != (cpu, memory)

    def withdraw(self, node: str) -> None:
        """The node is gone. Its pods are counted until they are gone themselves."""
        self._offered.pop(node, None)
        if self._used.get(node) == [0, 0]:
            del self._used[node]

    def use(self, uid: str, node: str, cpu: int, memory: int) -> list[str]:
        """A pod is on a node. Returns the nodes where that changes something."""
        if self._uses.get(uid) == (node, cpu, memory):
            return []
        changed = self.end(uid)
        if not cpu and not memory:
            return changed
        self._uses[uid] = node, cpu, memory
        used = self._used.setdefault(node, [0, 0])
        used[0] += cpu
        used[1] += memory
        return [*changed, node]

    def end(self, uid: str) -> list[str]:
        """The pod is there no longer. Returns the nodes where that changes something."""
        use = self._uses.pop(uid, None)
        if use is None:
            return []
        node, cpu, memory = use
        used = self._used[node]
        used[0] -= cpu
        used[1] -= memory
        if used == [0, 0] and node not in self._offered:
            del self._used[node]
        return [node]

    def pods(self) -> KeysView[str]:
        """The uids of all that use something."""
        return self._uses.keys()

    def offered(self, node: str) -> tuple[int, int]:
        """CPU and memory that a node has for pods; nothing if that is unknown."""
        return self._offered.get(node, (0, 0))

    def left(self, node: str) -> tuple[int, int]:
        """CPU and memory that pods may still ask there."""
        offered, used = self._offered.get(node), self._used.get(node, _NONE)
        if offered is None:
            return UNKNOWN, UNKNOWN
        return max(offered[0] - used[0], 0), max(offered[1] - used[1], 0)


_NONE: Sequence[int] = (0, 0)
