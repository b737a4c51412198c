"""The flags and environment variables of NVIDIA's device plugin, and where its config file has the same thing.

Pure. Words beat variables, and variables beat the file, as in NVIDIA's plugin.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpushare.node.nvidia.rules.schema import File
from gpushare.obs.errors import UserError

KUBELET_SOCKET: Final = "/var/lib/kubelet/device-plugins/kubelet.sock"
TRUE: Final = ("1", "t", "true")
FALSE: Final = ("0", "f", "false")
NOT_BOOL: Final = '{name} is "{value:.20}"'

Value = str | bool | tuple[str, ...]


class Flag(NamedTuple):
    """`spellings` without dashes: the first one names it. `path`: its keys in the file, empty if it is not there.
    Its default says what kind of value it takes: text, yes or no, or a list. `empty`: an empty text is a value."""

    spellings: tuple[str, ...]
    variables: tuple[str, ...]
    path: str
    default: Value
    empty: bool = False

    @property
    def name(self) -> str:
        return self.spellings[0]


FLAGS: Final = (
    Flag(("mig-strategy",), ("MIG_STRATEGY",), "flags.mig_strategy", "none"),
    Flag(("fail-on-init-error",), ("FAIL_ON_INIT_ERROR",), "flags.fail_on_init_error", True),
    Flag(("mps-root",), ("MPS_ROOT",), "flags.mps_root", ""),
    Flag(("driver-root", "nvidia-driver-root"), ("NVIDIA_DRIVER_ROOT",), "flags.nvidia_driver_root", "/"),
    Flag(("dev-root", "nvidia-dev-root"), ("NVIDIA_DEV_ROOT",), "flags.nvidia_dev_root", ""),
    Flag(("pass-device-specs",), ("PASS_DEVICE_SPECS",), "flags.plugin.pass_device_specs", False),
    Flag(
        ("device-list-strategy",), ("DEVICE_LIST_STRATEGY",), "flags.plugin.device_list_strategy", ("envvar",)
    ),
    Flag(("device-id-strategy",), ("DEVICE_ID_STRATEGY",), "flags.plugin.device_id_strategy", "uuid"),
    Flag(("gdrcopy-enabled",), ("GDRCOPY_ENABLED",), "flags.gdrcopy_enabled", False),
    Flag(("gds-enabled",), ("GDS_ENABLED",), "flags.gds_enabled", False),
    Flag(("mofed-enabled",), ("MOFED_ENABLED",), "flags.mofed_enabled", False),
    Flag(("kubelet-socket",), ("KUBELET_SOCKET",), "", KUBELET_SOCKET, empty=True),
    Flag(("cdi-annotation-prefix",), ("CDI_ANNOTATION_PREFIX",), "flags.plugin.cdi_annotation_prefix", "cdi.k8s.io/"),
    Flag(
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"), ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        "flags.plugin.nvidia_ctk_path", "/usr/bin/nvidia-ctk",
    ),
    Flag(
        ("driver-root-ctr-path", "container-driver-root"), ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        "flags.plugin.container_driver_root", "/driver-root",
    ),
    Flag(
        ("shared-devices-allocation-policy",), ("SHARED_DEVICES_ALLOCATION_POLICY",),
        "flags.plugin.shared_devices_allocation_policy", "distributed",
    ),
    Flag(
        ("device-discovery-strategy",), ("DEVICE_DISCOVERY_STRATEGY",), "flags.device_discovery_strategy", "auto"
    ),
    Flag(("cdi-feature-flags",), ("CDI_FEATURE_FLAGS",), "", ()),
    Flag(("cdi-disable-hooks",), ("CDI_DISABLE_HOOKS",), "", ()),
    Flag(("imex-channel-ids",), ("IMEX_CHANNEL_IDS",), "imex.channel_ids", ()),
    Flag(("imex-required",), ("IMEX_REQUIRED",), "imex.required", False),
)  # fmt: skip

LISTS: Final = frozenset(flag.name for flag in FLAGS if isinstance(flag.default, tuple))


def values(given: Mapping[str, str], environment: Mapping[str, str], file: File) -> dict[str, Value]:
    """The value of each flag, by its name. `given`: what the command line says, by the flag's name."""
    return {flag.name: next(_said(flag, given, environment, file)) for flag in FLAGS}


def _said(flag: Flag, given: Mapping[str, str], environment: Mapping[str, str], file: File) -> Iterator[Value]:
    if flag.name in given:
        yield _value(flag, f"--{flag.name}", given[flag.name])
    for variable in flag.variables:
        if variable in environment and (environment[variable] or flag.empty):
            yield _value(flag, variable, environment[variable])
    written: Any = file if flag.path else None
    for key in flag.path.split(".") if flag.path else ():
        written = getattr(written, key)
    if written is not None:
        yield _listed(written) if isinstance(flag.default, tuple) else written
    yield flag.default


def yes(name: str, text: str) -> bool:
    """`name`: of the flag or variable, for the error."""
    if text.lower() not in TRUE + FALSE:
        raise UserError(NOT_BOOL.format(name=name, value=text), "it is a yes or no", f"{name}=true, or false")
    return text.lower() in TRUE


def _value(flag: Flag, name: str, text: str) -> Value:
    if isinstance(flag.default, tuple):
        return _listed(text)
    if not isinstance(flag.default, bool):
        return text
    return yes(name, text)


def _listed(written: str | list[str] | list[int]) -> tuple[str, ...]:
    words = written.split(",") if isinstance(written, str) else map(str, written)
    return tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
