"""What the GPUs of a node do at one moment: the figures of one pass over the driver, as data.

What a driver or a GPU does not tell is None: unknown, never 0. `sampling` reads them through NVML, `simulated` makes
them up for the embedded cluster.
"""

import msgspec


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process that uses a GPU. Its id is that of the host, whatever container it runs in."""

    pid: int
    memory: int | None = None  # bytes
    sm: int | None = None  # percent of the GPU's time, since the pass before


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One GPU. Memory in bytes, utilisation in percent, temperature in °C, power in mW, energy in mJ, clocks in MHz."""

    uuid: str
    index: int
    memory_total: int | None = None
    memory_used: int | None = None  # without what the driver keeps for itself
    memory_free: int | None = None
    memory_reserved: int | None = None  # what the driver keeps for itself
    gpu_util: int | None = None
    memory_util: int | None = None
    encoder_util: int | None = None
    decoder_util: int | None = None
    temperature: int | None = None
    memory_temperature: int | None = None
    temperature_limit: int | None = None  # above it the GPU slows down
    power: int | None = None
    power_limit: int | None = None
    energy: int | None = None  # since the driver was loaded
    sm_clock: int | None = None
    memory_clock: int | None = None
    pcie_replays: int | None = None
    correctable_remapped_rows: int | None = None
    uncorrectable_remapped_rows: int | None = None
    row_remap_failure: bool | None = None
    processes: tuple[Process, ...] | None = None


class Pass(msgspec.Struct, frozen=True, gc=False):
    """All GPUs that could be read, by index."""

    driver: str  # its version; empty: unknown
    gpus: tuple[Sample, ...]
