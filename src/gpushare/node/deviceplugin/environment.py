"""The environment variables of a container that was given GPUs: Aliyun's, and the one that the container runtime reads.

Pure. kubelet keeps them for the container's whole life.
"""

from typing import Final, Literal

from gpushare.core.facts import names
from gpushare.core.facts.model import Kind
from gpushare.node.deviceplugin.allocation.allocate import Granted

CONTAINER: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CGPU_DISABLE: Final = "CGPU_DISABLE"

Visible = Literal["uuid", "index"]


def environment(granted: Granted, kind: Kind, visible: Visible, cgpu_disabled: bool) -> dict[str, str]:
    """Whole GPUs count with all their memory. Aliyun's variables name one GPU: the first of several."""
    first = granted.gpus[0]
    size = sum(gpu.total for gpu in granted.gpus) if kind.exclusive else granted.size
    variables = {
        names.VISIBLE_DEVICES: ",".join(gpu.uuid if visible == "uuid" else str(gpu.index) for gpu in granted.gpus),
        names.ALIYUN_IDX: str(first.index),
        names.ALIYUN_POD: str(size),
        CONTAINER: str(size),
        names.ALIYUN_DEV: str(first.total),
    }
    return variables | {CGPU_DISABLE: "true"} if cgpu_disabled else variables
