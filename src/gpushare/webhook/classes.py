"""The PriorityClasses of the cluster that are ours, by name: the sink of a watch.

A pod is given only a class that exists, with the number and the preemption policy that the class has now. So none is
refused because an admin deleted a class or made it anew. A class with one of these names that is not ours may evict
others, so it is not given.
"""

from collections.abc import Set
from typing import Final

from gpushare.core.facts import objects

OURS: Final = ("component", "gpushare-priority")  # a label of the classes in deploy/keti/deployments/priority.yaml


class Classes:
    def __init__(self) -> None:
        self.found: dict[str, objects.PriorityClass] = {}

    def upsert(self, item: objects.PriorityClass) -> None:
        self.found.pop(item.metadata.name, None)
        if OURS in (item.metadata.labels or {}).items():
            self.found[item.metadata.name] = item

    def remove(self, item: objects.PriorityClass) -> None:
        self.found.pop(item.metadata.name, None)

    def relisted(self, kept: Set[str]) -> None:
        self.found = {name: item for name, item in self.found.items() if name in kept}
