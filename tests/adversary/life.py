"""Runs lives by their seeds, and makes what went wrong as short as it can.

A story that breaks a promise is told again with ever more of its deeds left out, as long as the same promise breaks.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from tests.adversary import adversary, world
from tests.adversary.accountant import Wrong
from tests.adversary.world import Counts, Deed, Story

MOST_TRIES = 400


class Found(NamedTuple):
    """A promise that broke: by which seed, how, and the shortest story that still does it."""

    seed: int
    wrong: Wrong
    story: Story

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.wrong}", f"cluster {json.dumps(self.story.cluster)}"]
        return "\n".join(lines + [f"  {word} {json.dumps(given)}" for word, given in self.story.deeds])


def live(seed: int) -> Counts | Found:
    """One life from its seed."""
    story = adversary.story(seed)
    wrong = broken(story)
    return wrong if isinstance(wrong, Counts) else Found(seed, *shortened(story, wrong))


def broken(story: Story) -> Wrong | Counts:
    try:
        return world.tell(story)
    except Wrong as wrong:
        return wrong


def shortened(story: Story, wrong: Wrong) -> tuple[Wrong, Story]:
    """Leaves out halves, quarters, and at last single deeds, for as long as it stays as wrong as it was."""
    tries, size = 0, max(1, len(story.deeds) // 2)
    while True:
        for shorter in _without(story.deeds, size):
            tries += 1
            found = broken(Story(story.cluster, shorter)) if tries <= MOST_TRIES else None
            if isinstance(found, Wrong) and found.kind == wrong.kind:
                story, wrong = Story(story.cluster, shorter), found
                break
        else:
            if size == 1 or tries > MOST_TRIES:
                return wrong, story
            size //= 2


def _without(deeds: list[Deed], size: int) -> Iterator[list[Deed]]:
    for start in range(len(deeds) - size, -1, -size):
        yield deeds[:start] + deeds[start + size :]
