"""What the device plugin talks to, as far as it does: an API server, a kubelet's connection, a recorder of events."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gpushare.devcluster.kubelet.device_manager import PluginError
from gpushare.kube import requests
from gpushare.kube.errors import ApiError, Unreachable
from gpushare.kube.requests import Request
from gpushare.kube.resources import NODES, PODS, Resource
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.node.deviceplugin.service import Service
from gpushare.node.endpoint import Refused
from tests.node.deviceplugin.made import NODE, Object
from tests.support.pod_calls import PodApi


class Server(PodApi):
    """The API server, as far as the plugin asks it. `away`: it does not answer. It lists pods in any order."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.pods: dict[str, Object] = {}
        self.dice, self.revisions = dice, 0
        self.away = False
        self.lists = 0
        self.node: Object = {"metadata": {"name": NODE}, "status": {}}
        self.tells: list[Callable[[str], None]] = []

    async def list_pages(
        self, resource: Resource, kind: Any, *, namespace: str = "", query: Any = None, limit: int = 500
    ) -> AsyncIterator[tuple[list[Any], str]]:
        assert (resource, query) == (PODS, {"fieldSelector": f"spec.nodeName={NODE}"})
        self.lists += 1
        self._answer()
        found = [msgspec.convert(pod, kind) for pod in self.pods.values()]
        self.dice.shuffle(found)
        yield found, str(self.revisions)

    async def fetch(self, request: Request, kind: Any) -> Any:
        assert request == requests.read(NODES, "", NODE)
        self._answer()
        return msgspec.convert(self.node, kind)

    async def patch_pod_annotations(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        self._answer()
        there = next((p for p in self.pods.values() if p["metadata"]["name"] == name), None)
        if there is None:
            raise ApiError(404, "NotFound", "no such pod")
        if there["metadata"]["uid"] != uid:
            raise ApiError(422, "Invalid", "another pod by now")
        merged = there["metadata"]["annotations"] | annotations
        there["metadata"]["annotations"] = {key: value for key, value in merged.items() if value is not None}
        self.changed(uid)

    def changed(self, uid: str) -> None:
        self.revisions += 1
        if uid in self.pods:
            self.pods[uid]["metadata"]["resourceVersion"] = str(self.revisions)
        for tell in self.tells:
            tell(uid)

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("connection refused", sent=False)


class Direct:
    """kubelet's way to a service, without a socket. `meanwhile` happens when kubelet has chosen and asks."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        one = messages.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        body = messages.PreferredAllocationRequest(container_requests=[one]).SerializeToString()
        answer = messages.PreferredAllocationResponse.FromString(await self._call(self.service.prefer, body))
        return list(answer.container_responses[0].deviceIDs)

    async def allocate(self, ids: list[str]) -> dict[str, str]:
        if self.meanwhile is not None:
            await self.meanwhile()
        one = messages.ContainerAllocateRequest(devices_ids=ids)
        body = messages.AllocateRequest(container_requests=[one]).SerializeToString()
        answer = messages.AllocateResponse.FromString(await self._call(self.service.allocate, body))
        return dict(answer.container_responses[0].envs)

    async def _call(self, method: Callable[[bytes], Awaitable[bytes]], body: bytes) -> bytes:
        try:
            return await method(body)
        except Refused as refused:
            raise PluginError(f"rpc error: code = FailedPrecondition desc = {refused}") from None


class Events:
    def __init__(self) -> None:
        self.recorded: list[dict[str, str]] = []

    def record(self, **event: str) -> None:
        self.recorded.append(event)
