"""What brings the driver into containers: NVIDIA's container runtime, or a CDI spec that the runtime reads.

A CDI spec that names device nodes which are not there any more, such as after a GPU was taken out, makes every pod fail
that uses it. Beside NVIDIA's runtime, which needs none, that is only a warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

PROGRAMS: Final = ("nvidia-container-runtime", "nvidia-ctk")
FOLDERS: Final = ("/usr/bin", "/usr/local/bin")  # and the toolkit container's
INSTALL_FOLDER: Final = "/usr/local/nvidia"  # of the toolkit container, which has them in a folder `toolkit`
CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
CDI_ENDINGS: Final = (".json", ".yaml", ".yml")
OWN: Final = "nvidia"  # in the names of files that NVIDIA's programs write; others are not ours to complain of
KIND_ENDS: Final = "nvidia.com/gpu"  # nvidia.com/gpu, and those of device plugins

NOTHING: Final = "neither NVIDIA's container runtime ({programs}) nor a CDI spec for nvidia.com/gpu is there"
INSTALL: Final = "install nvidia-container-toolkit on this node, or toolkit.enabled: true in the ClusterPolicy"
BY_SPEC: Final = "CDI spec {path}, {count}"
STALE: Final = "CDI spec {path} names {node}, which is not there"
BROKEN: Final = "CDI spec {path} cannot be read: {why}"
WRITE_AGAIN: Final = "on the node: nvidia-ctk cdi generate --output={path}, or remove that file"


class Spec(NamedTuple):
    """`nodes`: the device nodes it names, as paths on the machine. `problem`: why it cannot be read."""

    path: str
    devices: int = 0
    nodes: tuple[str, ...] = ()
    problem: str = ""


def read(path: str, data: object) -> Spec | None:
    """A decoded file; None if it is about something else than NVIDIA's GPUs."""
    if not isinstance(data, Mapping) or not str(data.get("kind", "")).endswith(KIND_ENDS):
        return None
    devices = [device for device in _listed(data.get("devices")) if isinstance(device, Mapping)]
    edits = [data.get("containerEdits"), *(device.get("containerEdits") for device in devices)]
    listed = [node for edit in edits if isinstance(edit, Mapping) for node in _listed(edit.get("deviceNodes"))]
    nodes = [str(node.get("hostPath") or node.get("path") or "") for node in listed if isinstance(node, Mapping)]
    return Spec(path, len(devices), tuple(dict.fromkeys(node for node in nodes if node.startswith("/"))))


def judged(programs: Sequence[str], specs: Sequence[Spec], absent: frozenset[str]) -> Verdict:
    """`programs`: paths of those of NVIDIA's that were found. `absent`: the device nodes of specs that are not
    there."""
    wrong = [problem for spec in specs if (problem := _wrong(spec, absent))]
    if programs:
        return verdict.passed(programs[0], *wrong)
    if wrong:
        spec = next(spec for spec in specs if _wrong(spec, absent))
        return verdict.failed(wrong[0], WRITE_AGAIN.format(path=spec.path))
    usable = [spec for spec in specs if spec.devices]
    if not usable:
        return verdict.failed(NOTHING.format(programs=", ".join(PROGRAMS)), INSTALL)
    count = "1 device" if usable[0].devices == 1 else f"{usable[0].devices} devices"
    return verdict.passed(BY_SPEC.format(path=usable[0].path, count=count))


def _wrong(spec: Spec, absent: frozenset[str]) -> str:
    if spec.problem:
        return BROKEN.format(path=spec.path, why=spec.problem)
    missing = next((node for node in spec.nodes if node in absent), "")
    return STALE.format(path=spec.path, node=missing) if missing else ""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
