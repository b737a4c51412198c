"""Which GPUs are sick, and why. Pure: `node` tells it what was seen and when, and publishes what it says.

A GPU falls sick at once and is well again only after it has been well for a while, so that one that comes and goes
gets no new work. One that is gone stays known, with the reason: what pods hold on it must stay counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpushare.gpu.device import Device, Xid

WELL_SECONDS = 60.0

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
    seen: str = ""  # what was wrong when it was last seen unwell
    at: float = 0.0  # when it was last known to be unwell


class Health:
    """What is known of the GPUs of one node, by uuid: indices change when a GPU falls off."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._troubles: dict[str, _Trouble] = {}

    def see(self, devices: Iterable[Device], now: float) -> None:
        """These GPUs are there now, and no others."""
        seen = {device.uuid: device for device in devices}
        self._known |= seen.keys()
        for uuid in self._known:
            self._judge(uuid, _wrong(seen.get(uuid)), now)

    def unseen(self, why: str, now: float) -> None:
        """Nobody could say which GPUs are there."""
        for uuid in self._known:
            self._judge(uuid, why, now)

    def xid(self, event: Xid, now: float) -> None:
        """The driver reported an error of one GPU, or of no particular one, which concerns all of them."""
        if event.code in OF_THE_APPLICATION:
            return
        name = XID_NAMES.get(event.code)
        for uuid in self._known if event.uuid is None else (event.uuid,):
            trouble = self._troubles.setdefault(uuid, _Trouble())
            trouble.xid = f"Xid {event.code}: {name}" if name else f"Xid {event.code}"
            trouble.at = now

    def sick(self) -> dict[str, str]:
        """The GPUs that get nothing new, by uuid, each with its reason."""
        return {
            uuid: "; ".join(filter(None, (trouble.xid, trouble.seen)))
            for uuid, trouble in self._troubles.items()
            if uuid in self._known
        }

    def _judge(self, uuid: str, wrong: str, now: float) -> None:
        if wrong:
            trouble = self._troubles.setdefault(uuid, _Trouble())
            trouble.seen, trouble.at = wrong, now
        elif uuid in self._troubles and now - self._troubles[uuid].at >= WELL_SECONDS:
            del self._troubles[uuid]


def _wrong(device: Device | None) -> str:
    if device is None:
        return LOST
    return device.fault or (MIG_ENABLED if device.mig else "")
