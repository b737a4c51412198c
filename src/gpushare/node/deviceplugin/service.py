"""The device plugin's answers, as bytes in and bytes out: one service for memory, one for whole GPUs.

Thin: it reads the message and asks `allocation.prefer` or `allocation.allocate`. If they refuse, the pods of this node
are listed once (`podlist`) and they are asked again. kubelet waits meanwhile and admits nothing else, so the list has a
limit of two seconds.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final, NoReturn, TypeVar

import grpc

from gpushare.core.facts.model import Kind, Refusal
from gpushare.kubelet.pb.deviceplugin_pb2 import (
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    PreferredAllocationResponse,
)
from gpushare.kubelet.unit_ids import Ids, Units
from gpushare.node.deviceplugin import decode
from gpushare.node.deviceplugin.allocation import allocate
from gpushare.node.deviceplugin.allocation.allocate import Granted
from gpushare.node.deviceplugin.allocation.prefer import Ask, prefer
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.decode import Malformed, Preferred
from gpushare.node.deviceplugin.environment import Visible, environment
from gpushare.node.deviceplugin.list_stream import ListStream
from gpushare.node.deviceplugin.podlist import PodList
from gpushare.node.deviceplugin.reconcile import Calls, Reconciler
from gpushare.node.endpoint import Refused
from gpushare.obs import log

SPEAKER: Final = "gpushare: "
NOT_READ: Final = "cannot read kubelet's message: {why}"
NOTHING: Final = "kubelet asks for no units"

T = TypeVar("T")

logger = log.get(__name__)


class Service:
    """One resource: memory, or whole GPUs. Both services share the state and everything else but the list of devices.

    `changed` is called after each grant and each refusal.
    """

    def __init__(
        self,
        state: State,
        devices: ListStream,
        calls: Calls,
        pods: PodList,
        reconciler: Reconciler,
        changed: Callable[[], None],
        *,
        kind: Kind,
        visible: Visible,
    ) -> None:
        self._state, self._devices, self._calls, self._kind, self._visible = state, devices, calls, kind, visible
        self._pods, self._reconciler, self._changed = pods, reconciler, changed

    def options(self) -> bytes:
        return DevicePluginOptions(get_preferred_allocation_available=True).SerializeToString()

    def lists(self) -> AsyncIterator[bytes]:
        """The whole list of devices, and again after each change."""
        return self._devices.messages()

    async def prefer(self, body: bytes) -> bytes:
        with self._calls:
            questions = _parsed(decode.preferred, body)
            async with self._calls.one_at_a_time:
                await self._reconciler.catch_up()
                answers = [await self._preferred(one) for one in questions]
            return PreferredAllocationResponse(
                container_responses=[ContainerPreferredAllocationResponse(deviceIDs=names) for names in answers]
            ).SerializeToString()

    async def allocate(self, body: bytes) -> bytes:
        with self._calls:
            requests = _parsed(decode.allocate, body)
            async with self._calls.one_at_a_time:
                granted = [await self._granted(one) for one in requests]
            self._report_change()
            environments = [self._environment(one) for one in granted]
            return AllocateResponse(
                container_responses=[ContainerAllocateResponse(envs=one) for one in environments]
            ).SerializeToString()

    async def _preferred(self, one: Preferred) -> list[str]:
        reader = self._reader(one.available)
        must = self._units(one.must_include)
        ask = Ask(one.size, self._kind, self._or_refuse(must), reader)
        if one.size < 1:
            return []
        units = prefer(self._state, ask, refreshed=False)
        if isinstance(units, Refusal) and not units.forever:
            await self._pods.refresh()
            units = prefer(self._state, ask, refreshed=False)
        if isinstance(units, Refusal) and not units.forever:
            if not ask.must:  # else kubelet is between two containers of a pod
                await self._reconciler.make_sure()
            units = prefer(self._state, ask, refreshed=True)
        return self._names(self._or_refuse(units))

    async def _granted(self, one: Ids) -> Granted:
        if not one.many:
            raise malformed(NOTHING)
        units = self._or_refuse(self._units(one))
        granted = allocate.grant(self._state, units, self._kind, refreshed=False)
        if isinstance(granted, Refusal) and not granted.forever:
            await self._pods.refresh()
            granted = allocate.grant(self._state, units, self._kind, refreshed=True)
        if isinstance(granted, Refusal):
            self._refuse(granted)
        return granted

    def _or_refuse(self, units: Units | Refusal) -> Units:
        if isinstance(units, Refusal):
            self._refuse(units)
        return units

    def _refuse(self, refusal: Refusal) -> NoReturn:
        self._state.refused()
        self._report_change()
        logger.warn("refused", code=refusal.code, why=refusal.message)
        raise Refused(SPEAKER + refusal.message, grpc.StatusCode.FAILED_PRECONDITION)

    def _report_change(self) -> None:
        self._changed()
        self._reconciler.due()

    def _environment(self, granted: Granted) -> dict[str, str]:
        variables = environment(granted, self._kind, self._visible, self._state.cgpu_disabled)
        pod = self._state.plans.pods.get(granted.owner.uid) if granted.owner else None
        name = f"{pod.namespace}/{pod.name}" if pod else ""
        gpus, whole = [gpu.index for gpu in granted.gpus], self._kind.exclusive
        logger.info("granted", units=granted.size, whole=whole, gpus=gpus, pod=name)
        return variables

    # Ids

    def _reader(self, ids: Ids) -> Callable[[str], int]:
        if self._kind.exclusive:
            there = set(ids.texts())
            return lambda uuid: int(uuid in there)
        reader, totals = self._state.catalog.reader(ids), self._state.catalog.totals
        known: Units = {}

        def units(uuid: str) -> int:
            if uuid not in known:
                known[uuid] = reader.units(uuid, totals.get(uuid, 0))
            return known[uuid]

        return units

    def _units(self, ids: Ids) -> Units | Refusal:
        state, catalog = self._state, self._state.catalog
        if self._kind.exclusive:
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
        return list(units) if self._kind.exclusive else self._state.catalog.names(units)


def _parsed(parse: Callable[[bytes], list[T]], body: bytes) -> list[T]:
    try:
        return parse(body)
    except Malformed as error:
        raise malformed(NOT_READ.format(why=error)) from None


def malformed(sentence: str) -> Refused:
    """The message cannot be read, or asks for nothing."""
    return Refused(SPEAKER + sentence, grpc.StatusCode.INVALID_ARGUMENT)
