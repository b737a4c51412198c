"""Which GPUs are unhealthy, and why.

Pure. A GPU becomes unhealthy at once, and healthy again only after a minute without a problem, so that a GPU that comes
and goes gets no new pods. A GPU that is gone stays known, with the reason: what pods hold on it must stay counted.

What happens next: `node/gpus.py` compares the answer with the one before, and tells the publisher.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpushare.gpu.device import Device, Xid

RECOVERY_SECONDS = 60.0  # without a problem, until a GPU is healthy again

LOST = "lost: the driver does not show it any more"
MIG_ENABLED = "MIG is enabled"

# The program on the GPU did something wrong; the GPU is fine.
OF_THE_APPLICATION = frozenset({13, 31, 43, 45, 68, 109})

# As NVIDIA's catalog calls them; the others have their number only.
XID_NAMES = {
    46: "GPU stopped processing",
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    63: "memory row remapping or page retirement",
    64: "memory row remapping or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
    154: "GPU recovery action changed",
}


@dataclass
class _Trouble:
    xid: str = ""  # the last report of the driver
    seen: str = ""  # the problem when the GPU was last looked at and had one
    at: float = 0.0  # when it last had a problem


def of_the_gpu(xid: int) -> bool:
    """Whether such an error makes a GPU unhealthy."""
    return xid not in OF_THE_APPLICATION


class Health:
    """What is known of the GPUs of one node, by uuid: indices change when a GPU falls off. `counts`: which errors make
    a GPU unhealthy. `mig`: whether a GPU with MIG enabled can be given out."""

    def __init__(self, counts: Callable[[int], bool] = of_the_gpu, *, mig: bool = False) -> None:
        self._counts, self._mig = counts, mig
        self._known: set[str] = set()
        self._troubles: dict[str, _Trouble] = {}

    def see(self, devices: Iterable[Device], now: float) -> None:
        """These GPUs are there now, and no others."""
        seen = {device.uuid: device for device in devices}
        self._known |= seen.keys()
        for uuid in self._known:
            self._judge(uuid, self._wrong(seen.get(uuid)), now)

    def unseen(self, why: str, now: float) -> None:
        """The driver did not say which GPUs are there."""
        for uuid in self._known:
            self._judge(uuid, why, now)

    def xid(self, event: Xid, now: float) -> None:
        """The driver reported an error of one GPU; without a uuid it counts for all of them."""
        if not self._counts(event.code):
            return
        name = XID_NAMES.get(event.code)
        for uuid in self._known if event.uuid is None else (event.uuid,):
            trouble = self._troubles.setdefault(uuid, _Trouble())
            trouble.xid = f"Xid {event.code}: {name}" if name else f"Xid {event.code}"
            trouble.at = now

    def unhealthy(self) -> dict[str, str]:
        """The GPUs that get no new pods, by uuid, with the reason."""
        return {
            uuid: "; ".join(filter(None, (trouble.xid, trouble.seen)))
            for uuid, trouble in self._troubles.items()
            if uuid in self._known
        }

    def _judge(self, uuid: str, wrong: str, now: float) -> None:
        if wrong:
            trouble = self._troubles.setdefault(uuid, _Trouble())
            trouble.seen, trouble.at = wrong, now
        elif uuid in self._troubles and now - self._troubles[uuid].at >= RECOVERY_SECONDS:
            del self._troubles[uuid]

    def _wrong(self, device: Device | None) -> str:
        if device is None:
            return LOST
        return device.fault or (MIG_ENABLED if device.mig and not self._mig else "")
