"""How the GPUs of a node are connected: NVLinks between each two, and how near they are on PCIe.

Through NVML, by one session. What a driver or a GPU does not tell is left out: then all GPUs are equally near.
"""

from collections import Counter
from itertools import combinations
from typing import Any

import pynvml  # type: ignore[import-untyped]

from gpushare.gpu.device import Link
from gpushare.gpu.session import UNREADABLE, Session, reason


def links(session: Session) -> list[Link]:
    handles, _, _ = session.handles()
    to = {uuid: _nvlinks(session, handle) for _, uuid, handle in handles}
    bus = {uuid: _asked(session, pynvml.nvmlDeviceGetPciInfo, handle) for _, uuid, handle in handles}
    return [
        Link(
            one,
            other,
            to[one][_place(bus[other])] if bus[other] is not None else 0,
            _asked(session, pynvml.nvmlDeviceGetTopologyCommonAncestor, handle, far),
        )
        for (_, one, handle), (_, other, far) in combinations(handles, 2)
    ]


def _nvlinks(session: Session, handle: Any) -> "Counter[str]":
    """How many active NVLinks lead to each place on PCIe. A switch is such a place, too, and no GPU."""
    ends: Counter[str] = Counter()
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _asked(session, pynvml.nvmlDeviceGetNvLinkState, handle, number):
            continue
        end = _asked(session, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        if end is not None:
            ends[_place(end)] += 1
    return ends


def _place(pci: Any) -> str:
    """As one spelling: the driver writes the domain with four or eight digits."""
    return f"{pci.domain:x}:{pci.bus:x}:{pci.device:x}"


def _asked(session: Session, function: Any, *arguments: object) -> Any:
    """None also if this one GPU cannot answer; a GPU has no more links than it has, so NVML calls the rest invalid."""
    try:
        return session.query(function, *arguments)
    except UNREADABLE as error:
        reason(error)  # of the whole driver: raised again
        return None
