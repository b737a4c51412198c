"""`random`: any node and any GPU that has room, each as likely as the others.

The core has no source of chance, and needs none: the uid of a pod is thrown like dice. So the same pods on the same
nodes give the same result.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b


def shuffled(uid: str, names: Sequence[str]) -> Iterator[str]:
    """In an order that the uid decides."""
    left = list(names)
    while left:
        last = _number(f"{uid}/{len(left)}") % len(left)
        left[last], left[-1] = left[-1], left[last]
        yield left.pop()


def points(uid: str, node: str, gpus: int) -> tuple[int, ...]:
    """Of each GPU of a node: the pod gets the one with the most that has room."""
    return tuple([_number(f"{uid}/{node}/{gpu}") for gpu in range(gpus)])


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
