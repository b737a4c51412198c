"""The sockets of a simulated kubelet: device plugins register at one, the other lists who has which device.

It speaks the gRPC of a real kubelet and does the same to plugins: at its start it deletes every socket in the folder,
it calls a plugin back before it answers its registration, and when a stream ends it disconnects whichever plugin is
registered then.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.kubelet.device_manager import DeviceManager, PluginError
from gpushare.kubelet import paths
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb import methods
from gpushare.kubelet.pb.podresources_pb2 import (
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)

CHECKPOINT: Final = "kubelet_internal_checkpoint"
DIAL_SECONDS: Final = 10.0


class Remote:
    """A plugin, asked through its socket."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")

    async def prefers(self) -> bool:
        options = await self._call(methods.OPTIONS, messages.Empty(), messages.DevicePluginOptions, DIAL_SECONDS)
        return bool(options.get_preferred_allocation_available)

    async def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        one = messages.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = messages.PreferredAllocationRequest(container_requests=[one])
        answer = await self._call(methods.PREFERRED, request, messages.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    async def allocate(self, ids: list[str]) -> dict[str, str]:
        one = messages.ContainerAllocateRequest(devices_ids=ids)
        request = messages.AllocateRequest(container_requests=[one])
        answer = await self._call(methods.ALLOCATE, request, messages.AllocateResponse)
        if not answer.container_responses:
            raise PluginError("no containers return in allocation response")
        return dict(answer.container_responses[0].envs)

    def lists(self) -> Any:
        call = self._channel.unary_stream(
            methods.path(methods.DEVICE_PLUGIN, methods.LIST_AND_WATCH),
            request_serializer=messages.Empty.SerializeToString,
            response_deserializer=messages.ListAndWatchResponse.FromString,
        )
        return call(messages.Empty())

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: str, request: Any, answer: Any, timeout: float | None = None) -> Any:
        """Mostly without a timeout, as in kubelet."""
        call = self._channel.unary_unary(
            methods.path(methods.DEVICE_PLUGIN, method),
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return await call(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            name = "".join(word.capitalize() for word in error.code().name.split("_"))
            raise PluginError(f"rpc error: code = {name} desc = {error.details()}") from None
        except asyncio.CancelledError:
            raise PluginError("rpc error: code = Canceled desc = grpc: the client connection is closing") from None


class KubeletSockets:
    """Serves while its block does. `pods`: those of the node that have not ended."""

    def __init__(
        self, manager: DeviceManager, folder: Path, pod_resources: Path, pods: Callable[[], Iterable[Object]]
    ) -> None:
        self._manager, self._folder, self._pod_resources, self._pods = manager, folder, pod_resources, pods
        self._registered: dict[str, Remote] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._servers: list[grpc.aio.Server] = []

    async def __aenter__(self) -> Self:
        _clear(self._folder)
        await self._serve(self._pod_resources, methods.POD_RESOURCES, methods.LIST, self._list)
        await self._serve(
            self._folder / paths.KUBELET_SOCKET, methods.REGISTRATION, methods.REGISTER, self._register
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._folder / CHECKPOINT).write_bytes(self._manager.checkpoint())
        for resource in list(self._registered):
            await self._disconnect(resource)
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        for server in self._servers:
            await server.stop(None)

    async def _serve(self, path: Path, service: str, method: str, answer: Any) -> None:
        server = grpc.aio.server()
        handler: Any = grpc.unary_unary_rpc_method_handler(answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def _register(self, body: bytes, context: Any) -> bytes:
        request = messages.RegisterRequest.FromString(body)
        if request.version != methods.VERSION:
            await context.abort(grpc.StatusCode.UNKNOWN, f"unsupported version {request.version}")
        resource, plugin = request.resource_name, Remote(self._folder / request.endpoint)
        self._registered[resource] = plugin
        try:
            self._manager.connected(resource, plugin, prefers=await plugin.prefers())
        except PluginError as error:
            del self._registered[resource]
            await plugin.close()
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        task = asyncio.create_task(self._follow(resource, plugin))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        return messages.Empty().SerializeToString()

    async def _follow(self, resource: str, plugin: Remote) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for answer in plugin.lists():
                self._manager.listed(resource, {d.ID: d.health == methods.HEALTHY for d in answer.devices})
        await self._disconnect(resource)

    async def _disconnect(self, resource: str) -> None:
        """The plugin that is registered now, not necessarily the one whose stream ended."""
        plugin = self._registered.pop(resource, None)
        if plugin is not None:
            self._manager.disconnected(resource)
            await plugin.close()

    async def _list(self, body: bytes, context: Any) -> bytes:
        ListPodResourcesRequest.FromString(body)
        pods: dict[str, PodResources] = {}
        for pod, container, devices in self._manager.pod_resources(self._pods()):
            meta = pod["metadata"]
            shown = pods.setdefault(meta["uid"], PodResources(name=meta["name"], namespace=meta["namespace"]))
            each = [
                ContainerDevices(resource_name=resource, device_ids=[name])
                for resource, names in devices.items()
                for name in names
            ]
            shown.containers.append(ContainerResources(name=container, devices=each))
        return ListPodResourcesResponse(pod_resources=pods.values()).SerializeToString()


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
