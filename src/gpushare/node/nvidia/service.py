"""The answers to kubelet for one resource, as bytes in and bytes out.

Thin: it reads the message and asks `rules`. What is sold may change at any time (`sell`); kubelet then gets a new list.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from gpushare.gpu.device import Link
from gpushare.kubelet.pb.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from gpushare.node.endpoint import DeviceLists, Refused
from gpushare.node.nvidia.rules import answer, devices, prefer
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.obs import log

NOT_READ: Final = "cannot read kubelet's message"
NOTHING: Final = "kubelet asks for no device"

T = TypeVar("T", bound=Message)

logger = log.get(__name__)


class Service:
    """`nodes`: the driver's control nodes that exist now. `token`: a new name each time."""

    def __init__(self, settings: Settings, nodes: Callable[[], list[str]], token: Callable[[], str]) -> None:
        self._settings, self._nodes, self._token = settings, nodes, token
        self._gpus: dict[str, Gpu] = {}
        self._scores: prefer.Scores = {}
        self._devices = DeviceLists()

    def sell(self, settings: Settings, gpus: Iterable[Gpu], links: Iterable[Link]) -> None:
        """From now on these."""
        self._settings, self._gpus = settings, {gpu.uuid: gpu for gpu in gpus}
        self._scores = prefer.scores(self._gpus.values(), links)
        self._devices.set(devices.message(list(self._gpus.values()), settings.replicas))

    def options(self) -> bytes:
        return DevicePluginOptions(get_preferred_allocation_available=True).SerializeToString()

    def lists(self) -> AsyncIterator[bytes]:
        return self._devices.messages()

    async def prefer(self, body: bytes) -> bytes:
        asked = _read(PreferredAllocationRequest, body).container_requests
        return PreferredAllocationResponse(
            container_responses=[ContainerPreferredAllocationResponse(deviceIDs=self._preferred(one)) for one in asked]
        ).SerializeToString()

    async def allocate(self, body: bytes) -> bytes:
        asked = [list(one.devices_ids) for one in _read(AllocateRequest, body).container_requests]
        for ids in asked:
            if not ids:
                raise Refused(NOTHING, grpc.StatusCode.INVALID_ARGUMENT)
            why = answer.refusal(self._settings, self._gpus, ids)
            if why:
                logger.warn("refused", why=why)
                raise Refused(why, grpc.StatusCode.UNKNOWN)  # NVIDIA's plugin has no codes of its own
        nodes = self._nodes()
        answers = [answer.respond(self._settings, self._gpus, ids, nodes, self._token()) for ids in asked]
        for ids in asked:
            logger.info("granted", resource=self._settings.resource, devices=ids)
        return AllocateResponse(container_responses=answers).SerializeToString()

    def _preferred(self, one: ContainerPreferredAllocationRequest) -> list[str]:
        available, must, size = list(one.available_deviceIDs), list(one.must_include_deviceIDs), one.allocation_size
        settings = self._settings
        if settings.replicas > 1:
            known = dict.fromkeys(self._gpus, settings.replicas)
            return prefer.replicas(known, available, must, size, packed=settings.packed)
        return prefer.whole(list(self._gpus), available, must, size, self._scores)


def _read(kind: type[T], body: bytes) -> T:
    try:
        return kind.FromString(body)
    except DecodeError:
        raise Refused(NOT_READ, grpc.StatusCode.INVALID_ARGUMENT) from None
