"""Whether schedulers ask at the moment. Work that can wait is done when they do not."""

import time
from collections.abc import Callable
from typing import Final

QUIET_SECONDS: Final = 0.5  # without a question: nobody is placing pods


class Demand:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock() - QUIET_SECONDS

    def asked(self) -> None:
        self._last = self._clock()

    def is_high(self) -> bool:
        return self._clock() - self._last < QUIET_SECONDS
