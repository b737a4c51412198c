"""The kinds of problems that the audit of a node reports: reasons of Warning events, and labels of a metric.

Pure. The event of a problem says which pods it is about. `MEANINGS` say the same without any name, for readers who may
not see those pods.
"""

from typing import Final

from gpushare.core.explain import event_texts

OVERCOMMITTED: Final = "GPUOvercommitted"
WRONG_GPU: Final = "WrongGPU"
NVIDIA_TOO: Final = "NvidiaPluginToo"
UNIT_KEPT: Final = "UnitKept"
OTHER_UNIT: Final = "OtherUnit"
BOUND_BY_HAND: Final = event_texts.BOUND_BY_HAND
UNASKED_GPU: Final = "UnaskedGPU"
TOO_SMALL: Final = "GPUTooSmall"

MEANINGS: Final = {
    OVERCOMMITTED: "the pods of a GPU hold more than it has",
    WRONG_GPU: "a container sees another GPU than the one its pod is counted on",
    NVIDIA_TOO: "NVIDIA's device plugin also gives out this node's GPUs; nothing new is sent here",
    UNIT_KEPT: "the node still counts in another unit than it is configured to, because of pods that are there",
    OTHER_UNIT: "a pod was given GPU memory in another unit than the node counts in now",
    BOUND_BY_HAND: "a pod was not bound by gpushare",
    UNASKED_GPU: "a container can see GPUs that its pod did not ask for",
    TOO_SMALL: "a GPU has less than one unit to give out, so no pod can use it",
}
CODES: Final = tuple(MEANINGS)
