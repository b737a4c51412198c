"""The GPUs of this node, through NVIDIA's driver. A `gpu.device.Backend`.

NVML calls can block, fail or hang. So there is one call at a time, in a thread that can be abandoned, with a time
limit. After a failure the caller gets an error, and the next call opens a new session. Nothing here waits for ever.

NVML counts its GPUs only when it is initialised. So the session is opened again from time to time, to see GPUs that
came or came back; not often, because that wakes GPUs up, and some drivers do not tolerate it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
from pynvml import NVMLError  # type: ignore[import-untyped]

from gpushare.gpu import compute_mode, failures, topology
from gpushare.gpu.bounded import Threads
from gpushare.gpu.compute_mode import Modes
from gpushare.gpu.device import Device, Link, Versions, Xid
from gpushare.gpu.sample import Pass
from gpushare.gpu.sampling import Sampling
from gpushare.gpu.session import Listing, Session

LIMIT_SECONDS = 30.0  # for each unused GPU the driver may need seconds
WAIT_SECONDS = 2.0  # for errors
SLICE_SECONDS = 0.5  # of that wait; other questions wait so long
CLOSE_SECONDS = 2.0
RENEW_SECONDS = 300.0
RENEW_SOON_SECONDS = 60.0  # while a GPU is missing or faulty
MOST_STUCK = 3

T = TypeVar("T")


class Nvml:
    """The driver is opened by the first call."""

    def __init__(
        self,
        *,
        limit: float = LIMIT_SECONDS,
        wait: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._limit, self._wait, self._clock = limit, wait, clock
        self._turn = asyncio.Lock()
        self._waiting = 0  # questions that wait for their turn; the thread that waits for errors reads it
        self._threads = Threads()
        self._session = Session()
        self._sampling = Sampling()
        self._opened = 0.0
        self._troubled = False
        self._read: dict[str, Device] = {}  # by uuid, as last read in full
        self._late: list[Xid] = []  # reported while a session was being closed

    async def devices(self) -> list[Device]:
        async with self._its_turn():
            await self._renew_if_due()
            listing = await self._ask(_list)
            self.notes = listing.notes
            self._troubled = len(listing.devices) < listing.shown or any(device.fault for device in listing.devices)
            return [self._completed(device) for device in listing.devices]

    async def links(self) -> list[Link]:
        async with self._its_turn():
            return await self._ask(topology.links)

    async def versions(self) -> Versions:
        async with self._its_turn():
            return await self._ask(_versions)

    async def modes(self) -> Modes:
        async with self._its_turn():
            return await self._ask(compute_mode.read)

    async def set_mode(self, uuid: str, mode: int) -> None:
        async with self._its_turn():
            await self._ask(lambda session: compute_mode.set(session, uuid, mode))

    async def sample(self) -> Pass:
        async with self._its_turn():
            return await self._ask(self._sampling.sample)

    async def xids(self) -> list[Xid]:
        async with self._turn:
            late, self._late = self._late, []
            if late:
                return late
            xids = await self._ask(self._listen)
        if xids is None:  # NVML would return at once, each time
            await asyncio.sleep(self._wait)
        return xids or []

    async def close(self) -> None:
        session, self._session = self._session, Session()
        if session.is_open:
            try:
                await self._threads.run(session.close, _nothing, CLOSE_SECONDS)
            except TimeoutError:
                return  # the process ends anyway

    @contextlib.asynccontextmanager
    async def _its_turn(self) -> AsyncIterator[None]:
        """One question at a time. The wait for errors ends early for all others."""
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    def _listen(self, session: Session) -> list[Xid] | None:
        left = self._wait
        while True:
            xids = session.wait(int(min(left, SLICE_SECONDS) * 1000))
            left -= SLICE_SECONDS
            if xids or xids is None or self._waiting or left <= 0:
                return xids

    async def _renew_if_due(self) -> None:
        due = self._opened + (RENEW_SOON_SECONDS if self._troubled else RENEW_SECONDS)
        if self._session.is_open and self._clock() >= due:
            self._late += await self._ask(_end)

    async def _ask(self, question: Callable[[Session], T]) -> T:
        """Runs in a thread. The session belongs to that thread meanwhile, and for good if the thread hangs."""
        stuck = self._threads.stuck
        if stuck >= MOST_STUCK:
            raise failures.still_hangs(stuck)
        session, self._session = self._session, Session()
        was_open = session.is_open
        try:
            answer = await self._threads.run(lambda: _answer(question, session), session.close, self._limit)
        except TimeoutError:
            raise failures.hangs(session.doing, self._limit) from None
        self._session = session
        if not was_open:
            self._opened = self._clock()
        return answer

    def _completed(self, device: Device) -> Device:
        """What cannot be read now stays as it was read before: pods hold parts of it."""
        before = self._read.get(device.uuid)
        if device.memory_mib:
            self._read[device.uuid] = device
        elif before is not None:
            return msgspec.structs.replace(before, index=device.index, fault=device.fault)
        return device


def _answer(question: Callable[[Session], T], session: Session) -> T:
    try:
        return question(session)
    except NVMLError as error:
        failure = failures.failed(error, session.doing)
        session.close()
        raise failure from None
    except BaseException:
        session.close()  # so that the next call counts the GPUs again
        raise


def _list(session: Session) -> Listing:
    listing = session.listing()
    if not listing.shown:
        raise failures.no_gpu(session.driver())
    if not listing.devices:
        raise failures.none_readable(listing.shown, listing.notes)
    return listing


def _versions(session: Session) -> Versions:
    return session.versions()


def _end(session: Session) -> list[Xid]:
    """Reads the reports that are still waiting: they would be lost with the session."""
    try:
        return session.wait(0) or []
    except NVMLError:
        return []  # if this was serious, the next session fails, too
    finally:
        session.close()


def _nothing() -> None:
    pass
