"""The driver: its library is there, it answers, and the device nodes that containers need are there.

It is installed on the machine itself, or in a driver container whose root is a folder of the machine.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

LIBRARY: Final = "libnvidia-ml.so.1"
# Where NVIDIA's own validator looks, and in this order.
FOLDERS: Final = (
    "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
)  # fmt: skip
ALWAYS: Final = ("nvidiactl", "nvidia-uvm")  # device nodes besides one for each GPU

NO_LIBRARY: Final = f"no NVIDIA driver: {LIBRARY} is in none of the usual folders, such as {FOLDERS[0]}"
INSTALL: Final = "install NVIDIA's driver on this node, or driver.enabled: true in the ClusterPolicy"
NOT_READY: Final = "the driver container has not loaded the driver yet"
LOOK_AT_DRIVER: Final = "it may build modules for minutes; its log: kubectl logs -l component=gpushare-driver -n NS"
FOUND: Final = "driver {version} {where}, {count}"
ON_HOST, IN_CONTAINER = "of this machine", "of a driver container"
FEWER: Final = "of {pci} GPUs on the PCI bus only {gpus} answer (dmesg shows why)"
MISSING: Final = "missing: {nodes} (nvidia-modprobe -u -c=0 makes them)"
FAULTY: Final = "GPU {index} {uuid}: {fault}"


class Gpu(msgspec.Struct, frozen=True):
    index: int
    uuid: str
    minor: int | None = None  # of its device node; None: the driver does not say
    name: str = ""
    fault: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the driver says, or `what`, `why` and `way` if it does not answer."""

    version: str = ""
    gpus: tuple[Gpu, ...] = ()
    what: str = ""
    why: str = ""
    way: str = ""


class Libraries(NamedTuple):
    """Paths below the two roots; empty: not there. `container_began`: the root of a driver container has files in it.
    `container_ready`: it says that its driver is loaded."""

    host: str = ""
    container: str = ""
    container_began: bool = False
    container_ready: bool = False


class Candidate(NamedTuple):
    """A library that can be asked."""

    library: str
    of_host: bool


def candidates(libraries: Libraries) -> list[Candidate]:
    """Those to ask, in this order; the first one that answers counts."""
    found = [Candidate(libraries.host, True)] if libraries.host else []
    if libraries.container and libraries.container_ready:
        found.append(Candidate(libraries.container, False))
    return found


def nothing_to_ask(libraries: Libraries) -> Verdict:
    if libraries.container_began:
        return verdict.failed(NOT_READY, LOOK_AT_DRIVER)
    return verdict.failed(NO_LIBRARY, INSTALL)


def judged(asked: Candidate, answer: Answer, nodes: frozenset[str], pci: int | None, *warnings: str) -> Verdict:
    """`nodes`: names in the folder of device nodes. `pci`: GPUs on the bus; None: it cannot be read."""
    if answer.what:
        return verdict.failed(f"{answer.what}: {answer.why}", answer.way)
    gpus = answer.gpus
    where = ON_HOST if asked.of_host else IN_CONTAINER
    count = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    return verdict.passed(
        FOUND.format(version=answer.version, where=where, count=count),
        FEWER.format(pci=pci, gpus=len(gpus)) if pci is not None and pci > len(gpus) else "",
        *(FAULTY.format(index=gpu.index, uuid=gpu.uuid, fault=gpu.fault) for gpu in gpus if gpu.fault),
        _missing(gpus, nodes),
        *warnings,
    )


def _missing(gpus: Sequence[Gpu], nodes: frozenset[str]) -> str:
    wanted = (*ALWAYS, *(f"nvidia{gpu.minor}" for gpu in gpus if gpu.minor is not None))
    lacking = [f"/dev/{name}" for name in wanted if name not in nodes]
    return MISSING.format(nodes=", ".join(lacking)) if lacking else ""


def ready_file(of_host: bool, host_root: str, driver_root: str, *, own_nodes: bool) -> str:
    """The file `driver-ready`, which NVIDIA's containers read as shell variables. Roots: as on the machine; where
    containers find them is NVIDIA's. `own_nodes`: the driver container has device nodes of its own."""
    devices = not of_host and own_nodes
    variables = {
        "IS_HOST_DRIVER": "true" if of_host else "false",
        "NVIDIA_DRIVER_ROOT": host_root if of_host else driver_root,
        "DRIVER_ROOT_CTR_PATH": "/host" if of_host else "/driver-root",
        "NVIDIA_DEV_ROOT": driver_root if devices else host_root,
        "DEV_ROOT_CTR_PATH": "/driver-root" if devices else "/host",
    }
    return "".join(f"{name}={value}\n" for name, value in variables.items())
