"""A small world for the page: a shared GPU with all figures, a whole one with few, and one that is gone."""

from typing import Final

from gpushare.gpu.sample import Sample
from gpushare.node.exporter.page import Counted
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Key

GIB: Final = 1 << 30

FULL: Final = Sample(
    "GPU-a", 0, memory_total=80 * GIB, memory_used=30 * GIB, memory_free=49 * GIB, memory_reserved=GIB, gpu_util=63,
    memory_util=20, encoder_util=1, decoder_util=2, temperature=61, memory_temperature=70, temperature_limit=87,
    power=412_345, power_limit=700_000, energy=1_234_567_890_123, sm_clock=1410, memory_clock=1593, pcie_replays=3,
    correctable_remapped_rows=1, uncorrectable_remapped_rows=0, row_remap_failure=False,
)  # fmt: skip
SERVE: Final = ContainerUse("ml", "serve-a", "uid-a", "main", 20 * GIB, used=29 * GIB, sm=0.41)
NOTEBOOK: Final = ContainerUse("ml", "nb-3", "uid-b", "main", 10 * GIB)
TRAIN: Final = ContainerUse("ml", "train", "uid-c", "main", 16 * GIB, whole=True, used=GIB, sm=1.0)

USAGE: Final = Usage(
    "node-1",
    (
        GpuUse(0, "GPU-a", "NVIDIA H100", 80 * GIB, 30 * GIB, slots=8, granted_slots=2, bus="00000000:07:00.0",
               sample=FULL, containers=(SERVE, NOTEBOOK), unattributed=GIB),
        GpuUse(1, "GPU-b", "NVIDIA T4", 16 * GIB, 16 * GIB, bus="00000000:08:00.0",
               sample=Sample("GPU-b", 1, memory_used=GIB, gpu_util=0), containers=(TRAIN,)),
        GpuUse(2, "GPU-c", "NVIDIA T4", 16 * GIB, 0, healthy=False, why="lost"),
    ),
    sampled_at=1_763_387_000.25,
    driver="580.65.06",
)  # fmt: skip
COUNTED: Final = Counted(
    {("GPU-a", 31): 2, ("GPU-c", 79): 1, ("GPU-c", 999): 1}, {"GPU-a": 31, "GPU-c": 79},
    {Key("uid-a", "main", "GPU-a"): 9 * GIB, Key("gone", "main", "GPU-a"): GIB}, 4,
)  # fmt: skip
