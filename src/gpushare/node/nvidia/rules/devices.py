"""The devices that are sold: each GPU, or replicas of it, under NVIDIA's ids; and the list of them for kubelet.

Pure. Replicas of a GPU are `UUID::0`, `UUID::1`, …; an id without `::` is the whole GPU. An unhealthy GPU is listed
with all its replicas as unhealthy; NVIDIA's plugin forgets all but one of them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gpushare.core.facts.model import Data
from gpushare.gpu.device import Device
from gpushare.kubelet.pb import methods
from gpushare.kubelet.pb.deviceplugin_pb2 import Device as Listed
from gpushare.kubelet.pb.deviceplugin_pb2 import ListAndWatchResponse, NUMANode, TopologyInfo
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.obs.errors import UserError

REPLICA: Final = "::"
LONGEST_NUMBER: Final = 9  # digits
TOO_MANY: Final = "{gpus} GPUs with {replicas:,} replicas each are {count:,} devices"
TOO_MANY_WHY: Final = "kubelet takes a list of 4 MiB, which is about {most:,} of them"


class Gpu(Data, frozen=True):
    """One GPU to sell. `numa`: its NUMA node; None: it has none, or nobody says."""

    uuid: str
    index: int
    minor: int | None = None
    numa: int | None = None
    healthy: bool = True


def gpus(
    devices: Sequence[Device], unhealthy: Mapping[str, str], numa: Mapping[str, int], *, served: bool = True
) -> tuple[Gpu, ...]:
    """`unhealthy`: reasons by uuid. `served`: False if none of them can be used now. A GPU that is gone is not listed:
    its index and number may belong to another."""
    return tuple([Gpu(d.uuid, d.index, d.minor, numa.get(d.uuid), served and d.uuid not in unhealthy) for d in devices])


def ids(gpu: Gpu, replicas: int) -> list[str]:
    return [f"{gpu.uuid}{REPLICA}{number}" for number in range(replicas)] if replicas > 1 else [gpu.uuid]


def uuid(name: str) -> str:
    """Of the GPU that a device is, or is a replica of."""
    return name.partition(REPLICA)[0]


def number(name: str) -> int | None:
    """Of a replica; None if it has none that anybody could have given it."""
    text = name.partition(REPLICA)[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def message(gpus: Sequence[Gpu], replicas: int) -> bytes:
    """The list of all devices."""
    return ListAndWatchResponse(
        devices=[_listed(gpu, name) for gpu in gpus for name in ids(gpu, replicas)]
    ).SerializeToString()


def check(gpus: Sequence[Gpu], settings: Settings) -> None:
    """Refuses a list that kubelet would not take. More GPUs may be found later, but not many more."""
    count = len(gpus) * settings.replicas
    longest = max(
        (_listed(gpu, f"{gpu.uuid}{REPLICA}{settings.replicas - 1}").ByteSize() + 2 for gpu in gpus), default=1
    )
    most = methods.LIST_LIMIT // (longest + len(methods.UNHEALTHY) - len(methods.HEALTHY))
    if count > most:
        raise UserError(
            TOO_MANY.format(gpus=len(gpus), replicas=settings.replicas, count=count),
            TOO_MANY_WHY.format(most=round(most, -3)),
            f"replicas: {most // len(gpus)} or fewer",
        )


def _listed(gpu: Gpu, name: str) -> Listed:
    topology = None if gpu.numa is None else TopologyInfo(nodes=[NUMANode(ID=gpu.numa)])
    return Listed(ID=name, health=methods.HEALTHY if gpu.healthy else methods.UNHEALTHY, topology=topology)
