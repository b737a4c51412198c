"""`gpushare top`: which GPUs are used most, and which pods use more than they were given.

On a terminal it is drawn again in place, as `inspect -w` does it, and keys change the order. Piped, or with `-o json`,
it is printed once.
"""

import contextlib
from collections.abc import Callable

import msgspec

from gpushare.ctl import formats
from gpushare.ctl.inspect import watch
from gpushare.ctl.inspect.watch import Page
from gpushare.ctl.screen import Screen
from gpushare.ctl.top import page
from gpushare.ctl.top.keys import Keys
from gpushare.ctl.top.rows import ORDERS, ordered, rows
from gpushare.view import snapshot, unhealthy, vitals
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Source
from gpushare.view.why import waiting

BY_KEY = {order[0]: order for order in ORDERS}
QUIT = "q"


class Options(msgspec.Struct, frozen=True):
    order: str = "used"
    output: str = ""  # json or yaml; empty: for people


class _Ended(Exception):
    """Somebody pressed q."""


class Top:
    """What is shown, and the order that was chosen last."""

    def __init__(self, source: Source, screen: Screen, keys: Keys, order: str) -> None:
        self._source, self._screen, self._keys, self._order = source, screen, keys, order
        self._last: Snapshot | None = None

    def read(self, now: float) -> Snapshot:
        """After a key the same cluster is drawn again, so that the answer comes at once."""
        key, self._keys.pressed = self._keys.pressed, ""
        if key == QUIT:
            raise _Ended
        self._order = BY_KEY.get(key, self._order)
        if not key or self._last is None:
            self._last = read(self._source, now)
        return self._last

    def draw(self, cluster: Snapshot) -> Page:
        return page.page(rows(cluster), self._order, len(waiting.who(cluster)), self._screen, keys=True)


def run(options: Options, source: Source, screen: Screen, keys: contextlib.AbstractContextManager[Keys]) -> int:
    """Returns the exit code. A UserError says what is wrong; stdout is empty then."""
    with keys as clock:
        if screen.moves and not options.output:
            top = Top(source, screen, clock, options.order)
            try:
                return watch.run(top.read, top.draw, screen, clock)
            except _Ended:
                return 0
        cluster = read(source, clock.now())
    if options.output:
        found = rows(cluster)
        screen.say(formats.dump({"gpus": ordered(found.gpus, options.order), "pods": found.pods}, options.output))
        return 0
    _print(cluster, options.order, screen, screen.note)
    return 0


def read(source: Source, now: float) -> Snapshot:
    reading = vitals.Reading(source)
    cluster = snapshot.read(source, now)
    unhealthy.mark(cluster, source)
    cluster.doing = reading.found()
    return cluster


def _print(cluster: Snapshot, order: str, screen: Screen, note: Callable[[str], None]) -> None:
    drawn = page.page(rows(cluster), order, len(waiting.who(cluster)), screen, keys=False)
    screen.say("".join(f"{line}\n" for line in (drawn.counts, *drawn.table.lines(), *drawn.below)))
    for line in drawn.notes:
        note(line)
