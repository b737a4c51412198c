"""What is known of one GPU when a pod is placed: what the ledger knows, and what was measured.

Pods that were placed after the last sample are added to what was measured, as if each used all it was given: so the
next decision sees them, although figures come later. What is unknown is None, never 0.
"""

from gpushare.core.facts.model import Data

Terms = tuple[tuple[str, int], ...]
"""The points of a GPU or a node, each with what it is for. Their sum is the score."""


class GpuLoad(Data, frozen=True):
    """Memory in MiB, utilisation in percent, temperatures in °C, power in W."""

    total: int
    granted: int = 0  # given to pods
    pods: int = 0  # that hold something there
    most_pods: int = 10  # so many are a full GPU: its MPS slots, if it has some
    used: int | None = None  # measured, with what pods placed since were given
    utilization: float | None = None  # the same: each pod placed since counts with its part of the GPU
    temperature: int | None = None
    temperature_limit: int | None = None
    power: int | None = None
    power_limit: int | None = None
    over_used: bool | None = None  # a pod there uses more than it asked for
    linked: bool = False  # by NVLink to another GPU of the node
