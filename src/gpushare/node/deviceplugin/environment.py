"""What a container is told about the GPUs it was given: the original's variables, and the one the runtime reads.

Pure. kubelet keeps the answer for the container's whole life, so nothing is ever made up here: what cannot be served is
refused before.
"""

from typing import Final, Literal

from gpushare.core.facts import names
from gpushare.node.deviceplugin.allocation.allocate import Granted

CONTAINER: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CGPU_DISABLE: Final = "CGPU_DISABLE"

Visible = Literal["uuid", "index"]


def environment(granted: Granted, whole: bool, visible: Visible, cgpu_disabled: bool) -> dict[str, str]:
    """Whole GPUs count with all their memory. Of several GPUs the first stands in the original's, which knows one."""
    first = granted.gpus[0]
    size = sum(gpu.total for gpu in granted.gpus) if whole else granted.size
    told = {
        names.VISIBLE_DEVICES: ",".join(gpu.uuid if visible == "uuid" else str(gpu.index) for gpu in granted.gpus),
        names.ALIYUN_IDX: str(first.index),
        names.ALIYUN_POD: str(size),
        CONTAINER: str(size),
        names.ALIYUN_DEV: str(first.total),
    }
    return told | {CGPU_DISABLE: "true"} if cgpu_disabled else told
