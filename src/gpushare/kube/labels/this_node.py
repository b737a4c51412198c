"""This node's own object, as the API server shows it to a program that runs there.

Filled by one watch (`fieldSelector=metadata.name=NODE`). Programs compare it with what they have to say, and write what
is missing.
"""

from collections.abc import Callable, Set

from gpushare.core.facts import objects


class ThisNode:
    """`node` is None as long as there is no such node. Listeners are called after each change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: objects.Node | None = None
        self.listeners: list[Callable[[], None]] = []

    def upsert(self, item: objects.Node) -> None:
        self._set(item)

    def remove(self, item: objects.Node) -> None:
        self._set(None)

    def relisted(self, kept: Set[str]) -> None:
        if self.name not in kept:
            self._set(None)

    def _set(self, node: objects.Node | None) -> None:
        self.node = node
        for listener in self.listeners:
            listener()


def query(node: str) -> dict[str, str]:
    """Selects this node alone."""
    return {"fieldSelector": f"metadata.name={node}"}
