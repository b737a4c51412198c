"""The figures of a GPU under the names that NVIDIA's dcgm-exporter gives them, with their units.

Pure. Boards and alerts that people have ask for these names. What only DCGM itself can measure (DCGM_FI_PROF_*) is not
here. A figure is None where the GPU does not tell it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from gpushare.gpu.sample import Sample

MIB: Final = 1 << 20
XID: Final = "DCGM_FI_DEV_XID_ERRORS"
DRIVER: Final = "DCGM_FI_DRIVER_VERSION"  # not a metric but a label of all


class Figure(NamedTuple):
    """`kind`: gauge or counter."""

    name: str
    kind: str
    help: str
    of: Callable[[Sample], float | None]


def _mib(amount: int | None) -> int | None:
    return None if amount is None else amount // MIB


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


FIGURES: Final = tuple(
    Figure(f"DCGM_FI_DEV_{name}", kind, text, of)
    for name, kind, text, of in (
        ("SM_CLOCK", "gauge", "Clock of the multiprocessors, in MHz.", lambda s: s.sm_clock),
        ("MEM_CLOCK", "gauge", "Clock of the memory, in MHz.", lambda s: s.memory_clock),
        ("MEMORY_TEMP", "gauge", "Temperature of the memory, in °C.", lambda s: s.memory_temperature),
        ("GPU_TEMP", "gauge", "Temperature of the GPU, in °C.", lambda s: s.temperature),
        ("POWER_USAGE", "gauge", "Power, in W.", lambda s: _watts(s.power)),
        ("TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded, in mJ.", lambda s: s.energy),
        ("PCIE_REPLAY_COUNTER", "counter", "Repeated transfers over PCIe.", lambda s: s.pcie_replays),
        ("GPU_UTIL", "gauge", "Part of the time in which the GPU computed, in %.", lambda s: s.gpu_util),
        ("MEM_COPY_UTIL", "gauge", "Part of the time in which memory was accessed, in %.", lambda s: s.memory_util),
        ("ENC_UTIL", "gauge", "Use of the video encoder, in %.", lambda s: s.encoder_util),
        ("DEC_UTIL", "gauge", "Use of the video decoder, in %.", lambda s: s.decoder_util),
        ("XID_ERRORS", "gauge", "Last error (XID) that the driver reported; 0: none so far.", lambda _: None),
        ("FB_FREE", "gauge", "Memory that is free, in MiB.", lambda s: _mib(s.memory_free)),
        ("FB_USED", "gauge", "Memory in use, in MiB, without what the driver reserves.", lambda s: _mib(s.memory_used)),
        ("FB_RESERVED", "gauge", "Memory that the driver reserves, in MiB.", lambda s: _mib(s.memory_reserved)),
        ("UNCORRECTABLE_REMAPPED_ROWS", "counter", "Memory rows replaced after errors that could not be corrected.",
         lambda s: s.uncorrectable_remapped_rows),
        ("CORRECTABLE_REMAPPED_ROWS", "counter", "Memory rows replaced after errors that were corrected.",
         lambda s: s.correctable_remapped_rows),
        ("ROW_REMAP_FAILURE", "gauge", "1 if a memory row could not be replaced.",
         lambda s: _flag(s.row_remap_failure)),
    )
)  # fmt: skip
