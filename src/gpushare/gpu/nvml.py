"""The GPUs of this node through NVIDIA's driver, asked by `node`. A `gpu.device.Backend`.

NVML blocks, fails and hangs. So one question at a time is asked, in a thread that can be left behind, with a limit;
then the caller is told, and the next question starts a new conversation. Nothing here waits for ever.

NVML also counts its GPUs only when it is initialised. So the conversation is begun anew from time to time, to see GPUs
that came or came back; not often, because that wakes GPUs up, and some drivers cannot bear it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
from pynvml import NVMLError  # type: ignore[import-untyped]

from gpushare.gpu import failures
from gpushare.gpu.bounded import Threads
from gpushare.gpu.device import Device, Xid
from gpushare.gpu.session import Listing, Session

LIMIT_SECONDS = 30.0  # attaching to many GPUs that nobody uses takes seconds for each
WAIT_SECONDS = 2.0  # for errors; whoever asks for the devices meanwhile waits so long
CLOSE_SECONDS = 2.0
RENEW_SECONDS = 300.0
RENEW_SOON_SECONDS = 60.0  # while a GPU is missing or faulty
MOST_STUCK = 3

T = TypeVar("T")


class Nvml:
    """Opened when first asked."""

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
        self._threads = Threads()
        self._session = Session()
        self._opened = 0.0
        self._troubled = False
        self._read: dict[str, Device] = {}  # by uuid, as last read in full
        self._late: list[Xid] = []  # heard when a conversation ended

    async def devices(self) -> list[Device]:
        async with self._turn:
            await self._renew_if_due()
            listing = await self._ask(_list)
            self.notes = listing.notes
            self._troubled = len(listing.devices) < listing.shown or any(device.fault for device in listing.devices)
            return [self._completed(device) for device in listing.devices]

    async def xids(self) -> list[Xid]:
        async with self._turn:
            late, self._late = self._late, []
            if late:
                return late
            xids = await self._ask(lambda session: session.wait(int(self._wait * 1000)))
        if xids is None:  # asked again at once, NVML would say so at once
            await asyncio.sleep(self._wait)
        return xids or []

    async def close(self) -> None:
        session, self._session = self._session, Session()
        if session.is_open:
            try:
                await self._threads.run(session.close, _nothing, CLOSE_SECONDS)
            except TimeoutError:
                return  # the process ends anyway

    async def _renew_if_due(self) -> None:
        due = self._opened + (RENEW_SOON_SECONDS if self._troubled else RENEW_SECONDS)
        if self._session.is_open and self._clock() >= due:
            self._late += await self._ask(_end)

    async def _ask(self, question: Callable[[Session], T]) -> T:
        """Ask in a thread. While that works, and for good if it hangs, the session is that thread's."""
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
        """With what cannot be read now as it was read before: pods hold parts of that."""
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
        session.close()  # so that the GPUs are counted anew next time
        raise


def _list(session: Session) -> Listing:
    listing = session.listing()
    if not listing.shown:
        raise failures.no_gpu(session.driver())
    if not listing.devices:
        raise failures.none_readable(listing.shown, listing.notes)
    return listing


def _end(session: Session) -> list[Xid]:
    """Whatever was reported and not yet heard would be lost with the conversation."""
    try:
        return session.wait(0) or []
    except NVMLError:
        return []  # the next conversation shows whether this was serious
    finally:
        session.close()


def _nothing() -> None:
    pass
