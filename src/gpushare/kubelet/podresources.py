"""Which container has which devices, asked of kubelet.

kubelet names each unit in an entry of its own: a full node answers 6 MB, so it is asked only when there is something
to learn. Asking has a price: kubelet can lose an Allocate in progress, so the device plugin asks only when
kubelet has been quiet for a second.
"""

from pathlib import Path
from typing import Final, NamedTuple

import grpc

from gpushare.core.facts import kinds
from gpushare.core.facts.model import Kind
from gpushare.kubelet.pb import methods
from gpushare.kubelet.pb.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse

SECONDS: Final = 5.0
LARGEST: Final = 64 << 20  # bytes; gRPC's own limit is 4 MiB


class Listed(NamedTuple):
    """The devices of one container: ids of memory units, or of whole GPUs."""

    namespace: str
    pod: str
    container: str
    kind: Kind
    ids: list[str]


class NoAnswer(Exception):
    """kubelet could not be asked; the message says why."""


async def ask(socket: Path) -> list[Listed]:
    """All containers that have devices of ours. Makes a new connection each time: kubelet may have restarted."""
    options = [("grpc.max_receive_message_length", LARGEST)]
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            call = channel.unary_unary(
                methods.path(methods.POD_RESOURCES, methods.LIST),
                request_serializer=ListPodResourcesRequest.SerializeToString,
                response_deserializer=read,
            )
            listed: list[Listed] = await call(ListPodResourcesRequest(), timeout=SECONDS)
            return listed
    except grpc.aio.AioRpcError as error:
        raise NoAnswer(f"{error.code().name.lower()}: {error.details()}") from None


def read(body: bytes) -> list[Listed]:
    listed = []
    for pod in ListPodResourcesResponse.FromString(body).pod_resources:
        for container in pod.containers:
            for resource, kind in kinds.BY_PLUGIN.items():
                ids = [id for entry in container.devices if entry.resource_name == resource for id in entry.device_ids]
                if ids:
                    listed.append(Listed(pod.namespace, pod.name, container.name, kind, ids))
    return listed
