"""The labels of NVIDIA's GPU Feature Discovery, from what the driver and the machine say. Pure.

Names and values are NVIDIA's. They differ where NVIDIA's are broken:
* A node with several models has the labels of the model it has most GPUs of, then of the first name. `gpu.count` counts
  that model only. NVIDIA's depend on chance.
* Every value is valid, and at most 63 characters long. NVIDIA's longer ones never arrive.
* A driver version that is not X.Y or X.Y.Z costs the labels of the version, and no others.

A node that sells shares of GPU memory says `sharing-strategy=none`, `replicas=1`. All these labels are about GPUs as
`nvidia.com/gpu` counts them: there, a pod that gets one has it alone. Where an MPS daemon has the GPUs it is `mps`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts
from gpushare.gpu.device import Device, Versions

LONGEST: Final = 63
SHARED: Final = "-SHARED"
UNKNOWN: Final = "unknown"
NONE, MPS = "none", "mps"  # of sharing strategies
MODES: Final = {0x0302: "compute", 0x0300: "graphics"}  # by PCI class
DRIVER_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)
NOT_OF_A_LABEL: Final = re.compile(r"[^A-Za-z0-9_. -]")

# From this compute capability on. Those between two belong to the one before.
FAMILIES: Final = {
    (3, 0): "kepler",
    (5, 0): "maxwell",
    (6, 0): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 9): "ada-lovelace",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (11, 0): "undefined",
    (12, 0): "blackwell",
    (13, 0): "rubin",
    (14, 0): "undefined",
}

Labels = dict[str, str]


class Machine(NamedTuple):
    """`name`: its model, such as PowerEdge R740; empty: unknown. `classes`: of PCI, by uuid. `started`: when this
    process began, in seconds since 1970."""

    name: str
    classes: Mapping[str, int]
    started: int


class Sharing(NamedTuple):
    """`replicas`: into so many parts each GPU is divided. `renamed`: they are not sold as nvidia.com/gpu."""

    strategy: str = NONE
    replicas: int = 1
    renamed: bool = False


def sharing(offered: NodeFacts | None) -> Sharing:
    """Of what a node sells."""
    if offered is None:
        return Sharing()
    for sold in offered.sold:
        return Sharing(sold.sharing, sold.replicas, sold.resource != names.NVIDIA_GPU)
    return Sharing(MPS, offered.slots, True) if offered.only_mps else Sharing()


def labels(
    devices: Sequence[Device], versions: Versions, machine: Machine, shared: Sharing, mig_strategy: str = NONE
) -> Labels:
    """Without the prefix nvidia.com/ of each. Empty if there is no GPU that can be named."""
    model = _model(devices)
    if not model:
        return {}
    return {
        "gfd.timestamp": str(machine.started),
        **_versions(versions),
        "gpu.machine": value(machine.name) or UNKNOWN,
        **_of_model(model, machine, shared),
        "mig.capable": _bool(any(device.mig_capable for device in devices)),
        **({"mig.strategy": mig_strategy} if mig_strategy != NONE else {}),
        "mps.capable": _bool(shared.strategy == MPS and not any(device.mig for device in devices)),
    }


def understands(driver: str) -> bool:
    """Whether the version of the driver can be written into labels."""
    return DRIVER_VERSION.fullmatch(driver) is not None


def value(text: str, suffix: str = "") -> str:
    """Any text as a label's value, with a suffix that is never cut off."""
    words = NOT_OF_A_LABEL.sub("", text).split()
    cut = "-".join(words).strip("-_.")[: LONGEST - len(suffix)].rstrip("-_.")
    return f"{cut}{suffix}" if cut else ""


def _model(devices: Sequence[Device]) -> list[Device]:
    """All GPUs of the model that the labels are about."""
    named = [device for device in devices if value(device.name)]
    counts = Counter(device.name for device in named)
    chosen = min(counts, key=lambda name: (-counts[name], name), default="")
    return [device for device in named if device.name == chosen]


def _of_model(model: Sequence[Device], machine: Machine, shared: Sharing) -> Labels:
    first = model[0]
    divided = shared.replicas > 1 and not first.mig
    found = {
        "gpu.product": value(first.name, SHARED if divided and not shared.renamed else ""),
        "gpu.count": str(len(model)),
        "gpu.replicas": "0" if first.mig else str(shared.replicas),
        "gpu.sharing-strategy": shared.strategy if divided else NONE,
        "gpu.mode": MODES.get(machine.classes.get(first.uuid, 0), UNKNOWN),
    }
    if first.memory_mib:
        found["gpu.memory"] = str(first.memory_mib)
    major, _, minor = first.capability.partition(".")
    if major.isdecimal() and minor.isdecimal():
        found |= {"gpu.compute.major": major, "gpu.compute.minor": minor, "gpu.family": _family(int(major), int(minor))}
    return found


def _family(major: int, minor: int) -> str:
    known = [name for begins, name in FAMILIES.items() if begins <= (major, minor)]
    return known[-1] if known else "undefined"


def _versions(versions: Versions) -> Labels:
    found: Labels = {}
    if (driver := DRIVER_VERSION.fullmatch(versions.driver)) is not None:
        major, minor, revision = driver[1], driver[2], driver[3] or ""
        found |= {
            "cuda.driver.major": major, "cuda.driver.minor": minor, "cuda.driver.rev": revision,
            "cuda.driver-version.major": major, "cuda.driver-version.minor": minor,
            "cuda.driver-version.revision": revision, "cuda.driver-version.full": versions.driver,
        }  # fmt: skip
    major, _, minor = versions.cuda.partition(".")
    if major and minor:
        found |= {
            "cuda.runtime.major": major, "cuda.runtime.minor": minor,
            "cuda.runtime-version.major": major, "cuda.runtime-version.minor": minor,
            "cuda.runtime-version.full": versions.cuda,
        }  # fmt: skip
    return found


def _bool(yes: bool) -> str:
    return "true" if yes else "false"
