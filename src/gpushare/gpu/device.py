"""What the rest of gpushare knows of GPUs: one GPU, an error report (Xid), and the interface to ask for both.

`nvml` and `simulated` implement the interface; `health` decides which GPUs are unhealthy.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gpushare.gpu.sample import Pass
from gpushare.obs.errors import UserError


class Device(msgspec.Struct, frozen=True, gc=False):
    """One GPU as the driver shows it now."""

    index: int
    uuid: str
    minor: int | None  # of /dev/nvidiaN; None: the driver does not say
    bus: str  # PCI bus id, such as 00000000:3B:00.0; empty: the driver does not say
    name: str
    memory_mib: int  # the driver's total / 1 MiB, rounded down, as Aliyun's plugin counts
    capability: str  # CUDA compute capability, such as 8.0; empty: the driver does not say
    mig: bool = False  # it is enabled
    fault: str = ""  # why it cannot be used although the driver shows it; the rest is then as it was last read
    mig_capable: bool = False


class Xid(msgspec.Struct, frozen=True, gc=False):
    """A critical error the driver reported. `uuid` is None if it concerns no particular GPU, hence all of them."""

    uuid: str | None
    code: int


class Link(msgspec.Struct, frozen=True, gc=False):
    """How two GPUs are connected, by uuid."""

    one: str
    other: str
    nvlinks: int = 0  # active ones between the two
    level: int | None = None  # NVML's nearest common part of PCIe: 0 is the same board, 50 another CPU; None: unknown


class Versions(msgspec.Struct, frozen=True, gc=False):
    """Of the driver, such as 550.54.15 and 12.4; empty: it does not say."""

    driver: str
    cuda: str  # the newest that programs may use


class NoGpu(UserError):
    """The driver works, and this machine has no GPU."""


class NoDriver(UserError):
    """This machine, or this container, has no driver at all. A driver that is broken is another error."""


class Backend(Protocol):
    """Answers questions about the GPUs of this node. Every call ends within its time limit.

    Callers pause after a UserError: it may be raised at once, each time.
    """

    @property
    def notes(self) -> Sequence[str]:
        """What the last `devices` could not read, one sentence each, for the log."""
        ...

    async def devices(self) -> list[Device]:
        """All GPUs there are now, by index. Raises UserError, also if there is none; NoDriver if there is no driver."""
        ...

    async def links(self) -> list[Link]:
        """How each two GPUs are connected. That never changes while the machine runs. Raises UserError."""
        ...

    async def versions(self) -> Versions:
        """Of the driver. Raises UserError."""
        ...

    async def sample(self) -> Pass:
        """What the GPUs do now. Raises UserError, also if there is none."""
        ...

    async def xids(self) -> list[Xid]:
        """Errors that the driver reported. Waits a few seconds; empty if there was none. Raises UserError."""
        ...

    async def close(self) -> None:
        """Closes the driver. Never raises."""
        ...
