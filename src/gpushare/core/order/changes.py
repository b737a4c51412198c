"""Which nodes changed, and in which order: whoever keeps something about nodes remembers how many changes it has seen.

So a change costs one append, however much is kept, and the work is done when somebody asks.
"""


class Changes:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._forgotten = 0  # changes dropped from the front of the list

    @property
    def count(self) -> int:
        """How many there were so far."""
        return self._forgotten + len(self._names)

    def note(self, node: str, nodes: int) -> None:
        """A node changed. The list is cut once it names every one of so many nodes several times over."""
        self._names.append(node)
        if len(self._names) > 4 * nodes + 1024:
            half = len(self._names) // 2
            del self._names[:half]
            self._forgotten += half

    def since(self, seen: int) -> list[str] | None:
        """The nodes that changed after so many changes. None: that is too long ago, any node may have changed."""
        return self._names[seen - self._forgotten :] if seen >= self._forgotten else None
