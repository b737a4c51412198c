"""Looks again and again, in the order of the checks, and lets everybody know what has changed.

A ready file exists only while its check passes: it vanishes at the look that finds a fault, and with it those of the
checks that need it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from gpushare.core.annotations.validation import CHECKS, Checks
from gpushare.obs import log
from gpushare.obs.errors import UserError
from gpushare.validate.checks import Check
from gpushare.validate.ready_files import ReadyFiles
from gpushare.validate.rules import sequence
from gpushare.validate.rules.verdict import Verdict

LOOK_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 180.0  # without the end of a look; the driver has 30 s to answer, twice

logger = log.get(__name__)

Contents = Mapping[str, Callable[[], str]]  # of ready files that are not empty, by check
Told = Callable[[str, Verdict, bool], None]  # a check, what it says, and whether it said a failure before


class Keeper:
    """`checks`: by name, those of `CHECKS` that are made here. `say`: gets all of them when one has changed. `tell`:
    gets each check that fails now, or passes again."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        files: ReadyFiles,
        say: Callable[[Checks], None],
        tell: Told,
        *,
        contents: Contents | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.said: Checks = {}
        self.last_passed: dict[str, float] = {}  # seconds since 1970, by check
        self.failure = ""  # why ready files cannot be written
        self._checks, self._files, self._say, self._tell = checks, files, say, tell
        self._contents, self._now, self._clock = contents or {}, now, clock
        self._wake = asyncio.Event()
        self._looked = clock()

    def wake(self) -> None:
        """Something has changed: do not wait for the next look."""
        self._wake.set()

    def silent_for(self) -> float:
        """Seconds since the last look ended."""
        return self._clock() - self._looked

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wake.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def look(self) -> None:
        said: dict[str, Verdict] = {}
        for name in CHECKS:
            if name not in self._checks:
                continue
            blocker = sequence.blocked_by(said.items())
            if blocker:
                self._checks[name].blocked()
                said[name] = sequence.waits_for(blocker)
            else:
                said[name] = await self._checks[name].verdict()
        self._settle(said)
        self._looked = self._clock()

    def _settle(self, said: Mapping[str, Verdict]) -> None:
        before, stamp = self.said, datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.said = sequence.settled(before, said, stamp)
        self._keep_files(said)
        self.last_passed |= {name: self._now() for name, one in said.items() if one.state == "passed"}
        if self.said == before:
            return
        for name, one in said.items():
            was = before.get(name)
            if was is None or (was.state, was.why) != (one.state, one.why):
                logger.info("check", check=name, state=one.state, why=one.why, **{"try": one.way} if one.way else {})
                self._tell(name, one, was is not None and was.state == "failed")
        self._say(self.said)

    def _keep_files(self, said: Mapping[str, Verdict]) -> None:
        passed = [name for name, one in said.items() if one.state == "passed"]
        try:
            self._files.keep({name: self._contents[name]() if name in self._contents else "" for name in passed})
            self.failure = ""
        except UserError as error:
            if self.failure != error.what:
                logger.error(error.what, **error.fields())
            self.failure = error.what
