"""This node's own object, as the API server shows it.

The sink of one watch (`fieldSelector=metadata.name=NODE`). The publisher compares it with what it must say, and puts
right what is lost; the audit looks at what else is sold there.
"""

from collections.abc import Callable, Set

from gpushare.core.facts import objects

PATH = "/api/v1/nodes"


class ThisNode:
    """`node` is None until it is seen, and while there is none. Listeners are told after each change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: objects.Node | None = None
        self.listeners: list[Callable[[], None]] = []

    def upsert(self, item: objects.Node) -> None:
        self._show(item)

    def remove(self, item: objects.Node) -> None:
        self._show(None)

    def relisted(self, kept: Set[str]) -> None:
        if self.name not in kept:
            self._show(None)

    def _show(self, node: objects.Node | None) -> None:
        self.node = node
        for listener in self.listeners:
            listener()


def params(node: str) -> dict[str, str]:
    """Of the nodes of a cluster, only this one."""
    return {"fieldSelector": f"metadata.name={node}"}
