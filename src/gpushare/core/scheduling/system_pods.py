"""Pods of the system: nothing of gpushare ever evicts one, whatever its GPU does.

Pure. Nodes ask it for pods that use too much, the extender for pods that should move.
"""

from typing import Final

SYSTEM_PRIORITY: Final = 2_000_000_000  # of Kubernetes' own classes, which begin with `system-`; users get no higher
SYSTEM_CLASS: Final = "system-"


def is_of_the_system(priority: int, priority_class: str = "") -> bool:
    return priority >= SYSTEM_PRIORITY or priority_class.startswith(SYSTEM_CLASS)
