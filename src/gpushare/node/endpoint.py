"""Serves one resource at a socket and registers it with kubelet, again and again if needed.

kubelet forgets a plugin when it restarts (it makes a new socket, and deletes all others in the folder), when somebody
deletes our socket, and when it ends our stream. If we registered while the old stream is open, kubelet would close the
new stream with the old one. So the old server is stopped completely first, and kubelet gets a second to notice. The
files are checked once a second, which also notices a folder that was made anew.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from gpushare.kube.loop import Backoff
from gpushare.kubelet import paths
from gpushare.kubelet.pb import methods
from gpushare.kubelet.pb.deviceplugin_pb2 import DevicePluginOptions, Empty, PreStartContainerResponse, RegisterRequest
from gpushare.node import kubelet_folder
from gpushare.obs import log

LARGEST: Final = 16 << 20  # bytes of a request, which names all free ids; gRPC's default is too small
LOOK_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 1.0  # for kubelet to notice that the old stream has ended
STOP_SECONDS: Final = 0.5  # for answers that are being made
CALL_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0
NOT_OPENED: Final = "kubelet did not ask for the list within {seconds:.0f} s"

Identity = tuple[int, int]  # inode and time of kubelet's socket: others after each restart

logger = log.get(__name__)


class Refused(Exception):
    """The answer is no: the sentence that kubelet shows, and gRPC's code."""

    def __init__(self, sentence: str, code: grpc.StatusCode) -> None:
        super().__init__(sentence)
        self.code = code


class Service(Protocol):
    """What is served: one resource's answers, as bytes in and bytes out. `prefer` and `allocate` raise Refused."""

    def options(self) -> bytes: ...

    def lists(self) -> AsyncIterator[bytes]:
        """The whole list of devices, and again after each change."""
        ...

    async def prefer(self, body: bytes) -> bytes: ...

    async def allocate(self, body: bytes) -> bytes: ...


class DeviceLists:
    """The list of devices as every stream of kubelet's gets it: at once, and again when it has changed."""

    def __init__(self) -> None:
        self._message = b""
        self._changed = asyncio.Event()

    def set(self, message: bytes) -> None:
        if message != self._message:
            self._message = message
            self._changed.set()
            self._changed = asyncio.Event()

    async def messages(self) -> AsyncIterator[bytes]:
        while True:
            changed = self._changed
            yield self._message
            await changed.wait()


class Endpoint:
    """`restarted` gets the identity of kubelet's socket before each registration. `register` false: kubelet is not
    told, nor waited for."""

    def __init__(
        self,
        resource: str,
        socket: Path,
        service: Service,
        restarted: Callable[[Identity], None] = lambda _: None,
        *,
        register: bool = True,
        look_seconds: float = LOOK_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.registered, self.registrations = False, 0  # now, and how often
        self._resource, self._socket, self._service, self._restarted = resource, socket, service, restarted
        self._kubelet = socket.with_name(paths.KUBELET_SOCKET)
        self._registers = register
        self._look_seconds, self._pause_seconds, self._start_seconds = look_seconds, pause_seconds, start_seconds
        self._retry = Backoff()
        self._opened, self._ended = asyncio.Event(), asyncio.Event()  # kubelet's stream

    async def run(self) -> None:
        """For ever. A kubelet that is not there at the start is waited for `start_seconds`."""
        kubelet = await self._find(self._start_seconds) if self._registers else None
        while True:  # no `Loop`: nothing wakes this, and serving ends only when it is due again
            try:
                why = await self._serve(kubelet)
                self._retry.reset()
            except (grpc.aio.AioRpcError, OSError, RuntimeError, TimeoutError) as error:
                why = str(error.details() if isinstance(error, grpc.aio.AioRpcError) else error) or type(error).__name__
            logger.warn("registering again with kubelet", resource=self._resource, why=why)
            await asyncio.sleep(self._pause_seconds + self._retry.delay())
            kubelet = await self._find(None) if self._registers else None

    async def _find(self, limit: float | None) -> Identity:
        """Waits for kubelet's socket."""
        loop = asyncio.get_running_loop()
        begun, logged = loop.time(), False
        while (kubelet := _identity(self._kubelet)) is None:
            error = kubelet_folder.not_there(self._kubelet.parent)
            if limit is not None and loop.time() - begun >= limit:
                raise error
            if not logged:
                logger.warn(error.what, **error.fields())
                logged = True
            await asyncio.sleep(self._look_seconds)
        return kubelet

    async def _serve(self, kubelet: Identity | None) -> str:
        """Until kubelet has forgotten us. Returns the reason. Without a kubelet: until our socket is deleted."""
        self._opened, self._ended = asyncio.Event(), asyncio.Event()
        if kubelet is not None:
            self._restarted(kubelet)
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", LARGEST)])
        server.add_generic_rpc_handlers((self._handlers(),))
        server.add_insecure_port(f"unix:{self._socket}")
        try:
            await server.start()
            ours = _identity(self._socket)
            if kubelet is not None:
                await self._register()
                await self._until_opened()
                self.registered, self.registrations = True, self.registrations + 1
                logger.info("registered", resource=self._resource, socket=str(self._socket), times=self.registrations)
            return await self._forgotten(kubelet, ours)
        finally:
            self.registered = False
            await _stop(server)
            self._socket.unlink(missing_ok=True)

    async def _register(self) -> None:
        """The server must run already: kubelet calls back before it answers."""
        request = RegisterRequest(
            version=methods.VERSION,
            endpoint=self._socket.name,
            resource_name=self._resource,
            options=DevicePluginOptions.FromString(self._service.options()),
        )
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet}") as channel:
            call = channel.unary_unary(
                methods.path(methods.REGISTRATION, methods.REGISTER),
                request_serializer=RegisterRequest.SerializeToString,
                response_deserializer=Empty.FromString,
            )
            await call(request, timeout=CALL_SECONDS)

    async def _until_opened(self) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._opened.wait()
        except TimeoutError:
            raise TimeoutError(NOT_OPENED.format(seconds=CALL_SECONDS)) from None

    async def _forgotten(self, kubelet: Identity | None, ours: Identity | None) -> str:
        while True:
            if kubelet is not None and _identity(self._kubelet) != kubelet:
                return "kubelet has restarted"
            if _identity(self._socket) != ours:
                return "our socket was deleted"
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._ended.wait()
                return "kubelet ended the stream"
            except TimeoutError:
                continue

    def _handlers(self) -> grpc.GenericRpcHandler:
        handlers = {
            methods.OPTIONS: _answering(self._options),
            methods.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(self._lists),
            methods.PREFERRED: _answering(self._service.prefer),
            methods.ALLOCATE: _answering(self._service.allocate),
            methods.PRE_START: _answering(self._pre_start),
        }
        return grpc.method_handlers_generic_handler(methods.DEVICE_PLUGIN, handlers)

    async def _lists(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self._opened.set()
        try:
            async for message in self._service.lists():
                yield message
        finally:
            self._ended.set()

    async def _options(self, request: bytes) -> bytes:
        return self._service.options()

    async def _pre_start(self, request: bytes) -> bytes:
        return PreStartContainerResponse().SerializeToString()


def _answering(answer: Callable[[bytes], Awaitable[bytes]]) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """Messages are bytes; a refusal becomes a gRPC status with its sentence."""

    async def handle(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        try:
            return await answer(request)
        except Refused as refused:
            await context.abort(refused.code, str(refused))

    return grpc.unary_unary_rpc_method_handler(handle)


async def _stop(server: grpc.aio.Server) -> None:
    await server.stop(STOP_SECONDS)
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # Before Python 3.12 a cancellation is lost if it comes in the moment in which gRPC's wait ends.
        raise asyncio.CancelledError


def _identity(path: Path) -> Identity | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns
