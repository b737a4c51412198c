"""What is in force: the config file, variables and flags together, checked.

Pure. What NVIDIA's plugin would ignore is named in `notes`; what this plugin cannot do is refused with a sentence, so
that nobody believes in a setting that has no effect.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpushare.core.facts import names
from gpushare.core.facts.model import Data, Sold
from gpushare.core.facts.mps import clients
from gpushare.gpu.device import Device
from gpushare.node.nvidia.rules import flags, schema
from gpushare.node.nvidia.rules.schema import File, Replicated, Shared
from gpushare.obs.errors import UserError

STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
CDI: Final = STRATEGIES[2:]
POSSIBLE: Final = {
    "mig-strategy": ("none", "single", "mixed"),
    "device-id-strategy": ("uuid", "index"),
    "shared-devices-allocation-policy": ("distributed", "packed"),
    "device-discovery-strategy": ("auto", "nvml", "tegra"),
}
CANNOT: Final = {
    "gdrcopy-enabled": "GDRCopy", "gds-enabled": "GPUDirect Storage", "mofed-enabled": "MOFED",
    "imex-channel-ids": "IMEX channels", "cdi-feature-flags": "CDI feature flags",
    "cdi-disable-hooks": "a choice of CDI hooks",
}  # fmt: skip
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME: Final = 63
OF_NVIDIA: Final = "nvidia.com/"
FEWEST: Final = 2  # replicas

BOTH: Final = "config: sharing has timeSlicing and mps"
NO_STATUS: Final = "config: sharing.mps cannot be served without --mps-status"
NO_STATUS_WHY: Final = "MPS replicas are sold only while gpushare mps says that its daemon works"
MPS_AND_MIG: Final = "config: sharing.mps cannot be served: MIG is enabled on {gpus}"
TOO_MANY_CLIENTS: Final = "config: sharing.mps with {replicas} replicas cannot be served"
TOO_MANY_WHY: Final = "a GPU here serves at most {most} MPS clients: its compute capability is {capability}"
MIG_GPUS: Final = "--mig-strategy={strategy} cannot be served: MIG is enabled on {gpus}"


class Settings(Data, frozen=True):
    """`resource` and `replicas` are sold for each GPU. `most_one`: a container may ask for one replica only."""

    resource: str
    replicas: int
    most_one: bool
    strategies: tuple[str, ...]
    by_index: bool
    pass_device_specs: bool
    packed: bool
    mig_strategy: str
    fail_on_init_error: bool
    driver_root: str
    dev_root: str
    driver_root_here: str  # where the driver's root is in this container
    cdi_prefix: str
    nvidia_ctk: str
    kubelet_socket: str  # empty: kubelet is not told
    mps: bool = False  # replicas share a GPU by MPS, not by time
    notes: tuple[str, ...] = ()

    @property
    def sold(self) -> Sold:
        sharing = "none" if self.replicas == 1 else "mps" if self.mps else "time-slicing"
        return Sold(self.resource, self.replicas, sharing)

    @property
    def cdi(self) -> bool:
        return any(strategy in CDI for strategy in self.strategies)


def settle(data: object, given: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
    """`data`: the file as YAML has it. Raises UserError."""
    file = schema.read(data)
    if file.version != schema.VERSION:
        raise schema.unknown("config: version", file.version, (schema.VERSION,))
    value: dict[str, Any] = flags.values(given, environment, file)
    _check(value)
    shared, notes = _shared(file)
    mps = file.sharing.mps is not None
    renamed = f"{names.NVIDIA_GPU}.shared" if shared.rename_by_default and shared.resources else names.NVIDIA_GPU
    return Settings(
        resource=renamed,
        replicas=(shared.resources[0].replicas or 1) if shared.resources else 1,
        most_one=mps if shared.fail_requests_greater_than_one is None else shared.fail_requests_greater_than_one,
        strategies=value["device-list-strategy"],
        by_index=value["device-id-strategy"] == "index",
        pass_device_specs=value["pass-device-specs"],
        packed=value["shared-devices-allocation-policy"] == "packed",
        mig_strategy=value["mig-strategy"],
        fail_on_init_error=value["fail-on-init-error"],
        driver_root=value["driver-root"],
        dev_root=value["dev-root"] or value["driver-root"],
        driver_root_here=value["driver-root-ctr-path"],
        cdi_prefix=value["cdi-annotation-prefix"],
        nvidia_ctk=value["nvidia-cdi-hook-path"],
        kubelet_socket=value["kubelet-socket"],
        mps=mps and bool(shared.resources),
        notes=notes,
    )


def refuse_mps(settings: Settings, devices: Sequence[Device], *, status: str) -> None:
    """MPS replicas that cannot be served. `status`: the folder where the daemon's state is reported."""
    if not settings.mps:
        return
    if not status:
        raise UserError(NO_STATUS, NO_STATUS_WHY, "--mps-status=/run/nvidia/mps and gpushare mps: docs/mps.md")
    with_mig = ", ".join(device.uuid for device in devices if device.mig)
    if with_mig:
        way = "disable MIG, or sharing.timeSlicing"
        raise UserError(MPS_AND_MIG.format(gpus=with_mig), "MPS needs GPUs without it", way)
    most = clients.most([device.capability for device in devices])
    if settings.replicas > most:
        old = next(device.capability for device in devices if clients.most([device.capability]) == most)
        why = TOO_MANY_WHY.format(most=most, capability=old)
        raise UserError(TOO_MANY_CLIENTS.format(replicas=settings.replicas), why, f"replicas: {most} or fewer")


def refuse_mig(settings: Settings, devices: Iterable[Device]) -> None:
    """Slices are not sold. Without MIG on any GPU all strategies mean the same."""
    with_mig = ", ".join(device.uuid for device in devices if device.mig)
    if with_mig and settings.mig_strategy != "none":
        raise UserError(
            MIG_GPUS.format(strategy=settings.mig_strategy, gpus=with_mig),
            "gpushare sells no MIG slices",
            "--mig-strategy=none (such a GPU is sold as a whole), disable MIG, or NVIDIA's plugin on this node",
        )


def _check(value: Mapping[str, Any]) -> None:
    for name, possible in POSSIBLE.items():
        if value[name] not in possible:
            raise schema.unknown(f"--{name}", value[name], possible)
    for word in value["device-list-strategy"]:
        if word not in STRATEGIES:
            raise schema.unknown("--device-list-strategy", word, STRATEGIES)
    if not value["device-list-strategy"]:
        raise schema.unknown("--device-list-strategy", "", STRATEGIES)
    if not value["nvidia-cdi-hook-path"].strip("/."):
        why = f'"{value["nvidia-cdi-hook-path"]:.20}" names no program'
        raise UserError("--nvidia-cdi-hook-path cannot be used", why, "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook")
    for name, what in CANNOT.items():
        if value[name]:
            way = f"leave out --{name}, its variable and its key in the config"
            raise UserError(f"--{name} cannot be served", f"gpushare has nothing for {what}", way)
    if value["device-discovery-strategy"] == "tegra":
        way = "--device-discovery-strategy=nvml, or NVIDIA's plugin on this node"
        raise UserError("--device-discovery-strategy=tegra cannot be served", "gpushare asks NVML for GPUs", way)


def _shared(file: File) -> tuple[Shared, tuple[str, ...]]:
    """How nvidia.com/gpu is shared, without resources if it is not; and what is ignored."""
    kind, slicing, mps = "timeSlicing", file.sharing.time_slicing, file.sharing.mps
    notes = ["resources: names cannot be changed; ignored"] if file.resources != schema.Resources() else []
    if slicing is not None and mps is not None:
        raise UserError(BOTH, "a GPU is shared in one way only", "remove one of the two")
    if mps is not None:
        kind, slicing = "mps", mps
    if slicing is None:
        return Shared(), tuple(notes)
    if not slicing.resources:
        raise UserError(f"config: sharing.{kind}.resources is empty", "no resources specified", "- name: gpu")
    ours: list[Replicated] = []
    for at, resource in enumerate(slicing.resources):
        where = f"sharing.{kind}.resources[{at}]"
        name = _name(resource, f"config: {where}")
        notes += _ignored(resource, where, slicing.rename_by_default, name)
        if name != names.NVIDIA_GPU:
            notes.append(f"{where}: this node sells no {name}; ignored")
        elif ours:
            raise UserError(f"config: {where} names {name} again", "its replicas are said twice", "remove one of them")
        else:
            ours.append(resource)
    return msgspec.structs.replace(slicing, resources=ours), tuple(notes)


def _name(resource: Replicated, where: str) -> str:
    if not resource.name:
        raise UserError(f"{where} has no name", "it says which resource is shared", "name: nvidia.com/gpu")
    name = resource.name if resource.name.startswith(OF_NVIDIA) else OF_NVIDIA + resource.name
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name.removeprefix(OF_NVIDIA)):
        why = f"a name has at most {LONGEST_NAME} characters: small letters, digits, - and ."
        raise UserError(f'{where}: "{resource.name:.80}" is not a name of a resource', why, "name: nvidia.com/gpu")
    if resource.replicas is None or resource.replicas < FEWEST:
        said = "missing" if resource.replicas is None else resource.replicas
        raise UserError(f"{where}.replicas is {said}", f"number of replicas must be >= {FEWEST}", "replicas: 4")
    return name


def _ignored(resource: Replicated, where: str, renamed: bool, name: str) -> Iterable[str]:
    if resource.rename not in (None, f"{name}.shared" if renamed else None):
        yield f"{where}.rename: only renameByDefault renames; ignored"
    if resource.devices not in (None, "all"):
        yield f"{where}.devices: all GPUs are shared alike; ignored"
