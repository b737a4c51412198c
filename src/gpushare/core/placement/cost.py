"""What a search may cost, counted in GPUs looked at: so it is the same on every machine.

Pure. Some pods are hard to place, by chance or on purpose, and all other pods wait meanwhile. So every search spends
from a budget. When the budget is used up, the answer is "too hard".
"""

SEARCH_LOOKS = 8_000  # GPUs looked at in one search: about 2 ms
CALL_LOOKS = 20_000  # for all searches of one call of a scheduler: about 8 ms
UNHURRIED_LOOKS = 2_000_000  # where no other call waits: about half a second
NEVER_LOOKS = 1_000  # to find out whether a request could never fit a node: enough for all that people write
NODE_LOOKS = 8  # the cost of looking at a node, besides its GPUs
SIDECAR_LOOKS = 4  # the cost of a sidecar on a GPU, for each init container that runs beside it
SLOT_WEIGHT = 2  # so much more a GPU costs in a search for MPS shares, where sums find less and slots are looked at


class TooHard(Exception):
    """The search was given up because its budget is used up."""


class Budget:
    """How many GPUs may still be looked at, by all searches that share this budget."""

    __slots__ = ("left",)

    def __init__(self, looks: int) -> None:
        self.left = looks

    def spend(self, looks: int) -> None:
        self.left -= looks
        if self.left < 0:
            raise TooHard
