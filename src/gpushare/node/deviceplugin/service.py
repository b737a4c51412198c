"""The device plugin's answers, as bytes in and bytes out: one service for memory, one for whole GPUs.

Thin: it reads the message, asks `prefer` or `allocate`, and if they refuse lets somebody look at the API server once
before it believes them. kubelet waits meanwhile and admits nothing else, so looking ends after two seconds. `register`
puts it behind a socket.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NoReturn, TypeVar

from gpushare.core.facts.model import Gpu, Refusal
from gpushare.kubelet.pb.deviceplugin_pb2 import (
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    PreferredAllocationResponse,
)
from gpushare.kubelet.unit_ids import Catalog, Ids, Units, lowest
from gpushare.node.deviceplugin import decode, device_list
from gpushare.node.deviceplugin.allocation import allocate
from gpushare.node.deviceplugin.allocation.allocate import Granted
from gpushare.node.deviceplugin.allocation.prefer import Ask, prefer
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.decode import Malformed, Preferred
from gpushare.node.deviceplugin.environment import Visible, environment
from gpushare.node.deviceplugin.reconcile import Calls
from gpushare.obs import log

SPEAKER: Final = "gpushare: "
NOT_READ: Final = "not a message of kubelet's: {why}"
NOTHING: Final = "kubelet asks for no unit at all"

T = TypeVar("T")

logger = log.get(__name__)


class Refused(Exception):
    """The answer is no, in a sentence. `malformed`: the question was none."""

    def __init__(self, sentence: str, *, malformed: bool = False) -> None:
        super().__init__(SPEAKER + sentence)
        self.malformed = malformed


class Office:
    """What both services share. `look` brings the pods of this node up to date, and ends after a bounded time."""

    def __init__(
        self, state: State, catalog: Catalog, look: Callable[[], Awaitable[None]], clock: Callable[[], float]
    ) -> None:
        self.state, self.catalog, self.look = state, catalog, look
        self.catch_up: Callable[[], Awaitable[None]] = _nothing  # puts the table right if that is overdue
        self.make_sure: Callable[[], Awaitable[None]] = _nothing  # puts it right now
        self.visible: Visible = "uuid"
        self.cgpu_disabled = False
        self.calls = Calls(clock)
        self.one_at_a_time = asyncio.Lock()
        self.listeners: list[Callable[[], None]] = []  # told whenever something was granted or refused

    def tell(self) -> None:
        for listener in self.listeners:
            listener()


class Service:
    """One resource: memory, or whole GPUs."""

    def __init__(self, office: Office, *, whole: bool) -> None:
        self._office, self._whole = office, whole
        self._list = b""
        self._listed: tuple[tuple[Gpu, ...], dict[str, int], dict[str, str]] | None = None  # what the list was made of
        self._news = asyncio.Event()

    def options(self) -> bytes:
        return DevicePluginOptions(get_preferred_allocation_available=True).SerializeToString()

    # The list

    def relist(self) -> None:
        """Something changed: what is listed may have, too."""
        state, catalog = self._office.state, self._office.catalog
        gpus = state.facts.gpus
        well = {gpu.uuid: self._well(gpu.uuid) for gpu in gpus}
        made_of = (gpus, well, dict(catalog.keys))
        if self._listed == made_of:
            return
        self._listed = made_of
        if self._whole:
            message = device_list.whole(gpus, well)
        else:
            message = device_list.memory(gpus, catalog.keys, well, catalog.numbered)
        if message != self._list:
            self._list = message
            self._news.set()
            self._news = asyncio.Event()

    def _well(self, uuid: str) -> int:
        """The units that are listed healthy. A sick GPU withdraws those that nobody holds: without the others, the
        node would seem to have less than its pods already use."""
        table = self._office.state.table
        gpu = table.gpus[uuid]
        everything = 1 if self._whole else (1 << gpu.total) - 1
        if gpu.healthy:
            return everything
        if self._whole:
            return int(table.is_whole(uuid))
        unnamed = sum(grant.unnamed.get(uuid, 0) for grant in table.grants.values())
        taken = table.taken(uuid) & everything
        return taken | lowest(everything & ~taken, unnamed)

    async def lists(self) -> AsyncIterator[bytes]:
        """The whole list, and again whenever it changed."""
        while True:
            news = self._news
            yield self._list
            await news.wait()

    # The questions

    async def prefer(self, body: bytes) -> bytes:
        with self._office.calls:
            asked = _parsed(decode.preferred, body)
            async with self._office.one_at_a_time:
                await self._office.catch_up()
                answers = [await self._preferred(one) for one in asked]
            return PreferredAllocationResponse(
                container_responses=[ContainerPreferredAllocationResponse(deviceIDs=names) for names in answers]
            ).SerializeToString()

    async def allocate(self, body: bytes) -> bytes:
        with self._office.calls:
            asked = _parsed(decode.allocate, body)
            async with self._office.one_at_a_time:
                granted = [await self._granted(one) for one in asked]
            self._office.tell()
            told = [self._environment(one) for one in granted]
            return AllocateResponse(
                container_responses=[ContainerAllocateResponse(envs=one) for one in told]
            ).SerializeToString()

    async def _preferred(self, one: Preferred) -> list[str]:
        reader = self._reader(one.available)
        must = self._units(one.must_include)
        ask = Ask(one.size, self._whole, self._sound(must), reader)
        if one.size < 1:
            return []
        units = prefer(self._office.state, ask, looked=False)
        if isinstance(units, Refusal) and not units.forever:
            await self._office.look()
            units = prefer(self._office.state, ask, looked=False)
        if isinstance(units, Refusal) and not units.forever:
            if not ask.must:  # else it is in the middle of a pod
                await self._office.make_sure()
            units = prefer(self._office.state, ask, looked=True)
        return self._names(self._sound(units))

    async def _granted(self, one: Ids) -> Granted:
        if not one.many:
            raise Refused(NOTHING, malformed=True)
        units = self._sound(self._units(one))
        granted = allocate.grant(self._office.state, units, self._whole, looked=False)
        if isinstance(granted, Refusal) and not granted.forever:
            await self._office.look()
            granted = allocate.grant(self._office.state, units, self._whole, looked=True)
        if isinstance(granted, Refusal):
            self._refuse(granted)
        return granted

    def _sound(self, units: Units | Refusal) -> Units:
        if isinstance(units, Refusal):
            self._refuse(units)
        return units

    def _refuse(self, refusal: Refusal) -> NoReturn:
        self._office.state.refused()
        self._office.tell()
        logger.warn("refused", code=refusal.code, why=refusal.message)
        raise Refused(refusal.message)

    def _environment(self, granted: Granted) -> dict[str, str]:
        told = environment(granted, self._whole, self._office.visible, self._office.cgpu_disabled)
        pod = self._office.state.plans.pods.get(granted.owner.uid) if granted.owner else None
        likely = f"{pod.namespace}/{pod.name}" if pod else ""
        logger.info("granted", units=granted.size, whole=self._whole, gpus=[g.index for g in granted.gpus], pod=likely)
        return told

    # Ids

    def _reader(self, ids: Ids) -> Callable[[str], int]:
        if self._whole:
            there = set(ids.texts())
            return lambda uuid: int(uuid in there)
        reader, totals = self._office.catalog.reader(ids), self._office.catalog.totals
        known: Units = {}

        def units(uuid: str) -> int:
            if uuid not in known:
                known[uuid] = reader.units(uuid, totals.get(uuid, 0))
            return known[uuid]

        return units

    def _units(self, ids: Ids) -> Units | Refusal:
        state, catalog = self._office.state, self._office.catalog
        if self._whole:
            units = dict.fromkeys(ids.texts(), 1)
            strangers = [name for name in units if name not in state.table.gpus]
        else:
            reader = catalog.reader(ids)
            units = reader.all(catalog.totals)
            short = sum(bits.bit_count() for bits in units.values()) < ids.many
            strangers = reader.unknown(catalog.totals) if short else []
        if strangers:
            return allocate.unknown(state, strangers[0])
        if sum(bits.bit_count() for bits in units.values()) < ids.many:
            return allocate.twice(state)
        return units

    def _names(self, units: Units) -> list[str]:
        return list(units) if self._whole else self._office.catalog.names(units)


async def _nothing() -> None:
    pass


def _parsed(parse: Callable[[bytes], list[T]], body: bytes) -> list[T]:
    try:
        return parse(body)
    except Malformed as error:
        raise Refused(NOT_READ.format(why=error), malformed=True) from None
