"""What a container gets for the devices that kubelet chose: NVIDIA's four ways, one or several of them.

Pure. Refusals have the words of NVIDIA's plugin, because people search for them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gpushare.core.facts import names
from gpushare.kubelet.pb.deviceplugin_pb2 import CDIDevice, ContainerAllocateResponse, DeviceSpec, Mount
from gpushare.node.nvidia.rules import cdi_spec, devices
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import CDI, Settings

MOUNTED_AT: Final = "/var/run/nvidia-container-devices"
ANNOTATION: Final = "nvidia-device-plugin_"
MPS_PIPE: Final = "/mps/{resource}/pipe"  # in containers; NVIDIA's path
REFUSED: Final = 'invalid allocation request for "{resource}": {why}'
UNKNOWN: Final = "unknown device: {name}"
TOO_LARGE: Final = "invalid request: maximum request size for shared resources is 1; found {count}"
NO_NUMBER: Final = "the driver does not say which /dev/nvidiaN {uuid} is"


def refusal(settings: Settings, gpus: Mapping[str, Gpu], asked: Sequence[str]) -> str:
    """Why these devices cannot be given to one container; empty if they can."""
    why = next((UNKNOWN.format(name=name) for name in asked if not _exists(settings, gpus, name)), "")
    if not why and settings.most_one and settings.replicas > 1 and len(asked) > 1:
        why = TOO_LARGE.format(count=len(asked))
    if not why and settings.pass_device_specs:
        numberless = (uuid for uuid in map(devices.uuid, asked) if gpus[uuid].minor is None)
        why = next((NO_NUMBER.format(uuid=uuid) for uuid in numberless), "")
    return REFUSED.format(resource=settings.resource, why=why) if why else ""


def respond(
    settings: Settings, gpus: Mapping[str, Gpu], asked: Sequence[str], nodes: Collection[str], token: str
) -> ContainerAllocateResponse:
    """`nodes`: the driver's control nodes that exist. `token`: a name that no other answer has."""
    given = [gpus[uuid] for uuid in dict.fromkeys(map(devices.uuid, asked))]
    words = [cdi_spec.name(gpu, by_index=settings.by_index) for gpu in given]
    answer, ways = ContainerAllocateResponse(), settings.strategies
    if "envvar" in ways:
        answer.envs[names.VISIBLE_DEVICES] = ",".join(words)
    if "volume-mounts" in ways:
        answer.envs[names.VISIBLE_DEVICES] = MOUNTED_AT
        answer.mounts.extend(Mount(host_path="/dev/null", container_path=f"{MOUNTED_AT}/{word}") for word in words)
    qualified = [f"{cdi_spec.KIND}={word}" for word in words]
    if "cdi-annotations" in ways:
        answer.annotations[f"{settings.cdi_prefix}{ANNOTATION}{token}"] = ",".join(qualified)
    if "cdi-cri" in ways:
        answer.cdi_devices.extend(CDIDevice(name=name) for name in qualified)
    if settings.mps:
        pipe = MPS_PIPE.format(resource=settings.resource)
        answer.envs[names.MPS_PIPE] = pipe
        answer.mounts.extend((
            Mount(host_path=names.MPS_PIPE_FOLDER, container_path=pipe),
            Mount(host_path=names.SHM_FOLDER, container_path=names.SHM_FOLDER),
        ))  # fmt: skip
    if settings.pass_device_specs and not set(ways) <= set(CDI):
        answer.devices.extend(
            DeviceSpec(container_path=path, host_path=cdi_spec.on_host(settings, path), permissions="rw")
            for path in (*nodes, *(f"/dev/nvidia{gpu.minor}" for gpu in given))
        )
    return answer


def _exists(settings: Settings, gpus: Mapping[str, Gpu], name: str) -> bool:
    gpu = gpus.get(devices.uuid(name))
    if gpu is None:
        return False
    if settings.replicas == 1:
        return name == gpu.uuid
    number = devices.number(name)
    return number is not None and number < settings.replicas and name == f"{gpu.uuid}{devices.REPLICA}{number}"
