"""The kinds of problems that the audit reports. Each is the reason of a Warning event, and a label of the metric."""

from typing import Final

from gpushare.core.explain import event_texts
from gpushare.core.facts.model import Data, PodFacts

OVERCOMMITTED: Final = "GPUOvercommitted"
WRONG_GPU: Final = "WrongGPU"
NVIDIA_TOO: Final = "NvidiaPluginToo"
UNIT_KEPT: Final = "UnitKept"
OTHER_UNIT: Final = "OtherUnit"
BOUND_BY_HAND: Final = event_texts.BOUND_BY_HAND
UNASKED_GPU: Final = "UnaskedGPU"
TOO_SMALL: Final = "GPUTooSmall"
CODES: Final = (
    OVERCOMMITTED, WRONG_GPU, NVIDIA_TOO, UNIT_KEPT, OTHER_UNIT, BOUND_BY_HAND, UNASKED_GPU, TOO_SMALL
)  # fmt: skip
ONCE: Final = (TOO_SMALL,)  # lasts as long as the hardware: one event says it, not one every five minutes


class Finding(Data, frozen=True):
    """A problem of a pod, or of the node if `pod` is None."""

    code: str
    message: str
    pod: PodFacts | None = None
