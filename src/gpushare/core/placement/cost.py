"""What looking for a place may cost: counted in GPUs looked at, so that it is the same on every machine.

Pure. A pod may be made hard to place, or be so by chance, and everybody else waits meanwhile. Whoever looks spends from
a budget; where it is used up, the answer is that it was too hard.
"""

SEARCH_LOOKS = 8_000  # GPUs looked at in one search: about 2 ms
CALL_LOOKS = 20_000  # for everything that one call of a scheduler asks: about 8 ms
UNHURRIED_LOOKS = 2_000_000  # where nobody else waits: about half a second
NEVER_LOOKS = 1_000  # to find out whether a request could never fit a node: enough for all that people write
NODE_LOOKS = 8  # what looking at a node costs besides


class TooHard(Exception):
    """The search was given up: it would cost more than it may."""


class Budget:
    """How many GPUs may still be looked at, in all that uses this budget."""

    __slots__ = ("left",)

    def __init__(self, looks: int) -> None:
        self.left = looks

    def spend(self, looks: int) -> None:
        self.left -= looks
        if self.left < 0:
            raise TooHard
