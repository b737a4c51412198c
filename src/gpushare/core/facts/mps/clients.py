"""How many MPS clients a GPU serves, and what an equal part of it is.

Pure. NVIDIA's numbers: 48 clients from compute capability 7.5 on, 16 below. (Its own plugin draws the line there, and
its documentation at 7.0: the smaller number is right in both.)
"""

from collections.abc import Iterable
from typing import Final

MOST: Final = 48
MOST_OF_OLD: Final = 16
SINCE: Final = (7, 5)  # compute capability


def most(capabilities: Iterable[str]) -> int:
    """So many clients each GPU of a node can serve: as many as the one that serves fewest. `capabilities`: such as 8.0;
    empty: unknown, which limits nothing."""
    return min((MOST if _is_new(capability) else MOST_OF_OLD for capability in capabilities), default=MOST)


def memory_mib(total_mib: int, replicas: int) -> int:
    """Memory of one of so many equal parts, at least 1 MiB: a limit of 0 would mean none."""
    return max(total_mib // replicas, 1)


def threads(replicas: int) -> int:
    """Percent of a GPU's threads of one of so many equal parts."""
    return max(100 // replicas, 1)


def _is_new(capability: str) -> bool:
    major, _, minor = capability.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return True
    return (int(major), int(minor)) >= SINCE
