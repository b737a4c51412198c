"""One pass over the figures of all GPUs, through NVML, by one session.

Every question may fail by itself. Then that figure is unknown, because drivers answer some questions with an error
while all others work. A GPU is left out of the pass if it is lost, or if even its memory cannot be read: figures of
such a GPU mean nothing. Only a fault of the whole driver is raised.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu import failures
from gpushare.gpu.sample import Pass, Process, Sample
from gpushare.gpu.session import NOT_READ, OF_THE_DRIVER, UNREADABLE, Session, reason

GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
IDLE = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND})  # the binding raises even the first
MEMORY_TEMPERATURE = 82  # NVML's number of that field
MOST_PERCENT = 100  # drivers tell more, such as for processes that have ended

# A process can be in several lists. Version 2 first: it tells the same as version 3, whose layout some drivers (535.54,
# for example) changed, so that bindings read wrong pids there. Old bindings do not have version 2.
LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
)
# The first one is new, and on new GPUs the only one that tells more than 0.
SM_USE = ("nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetProcessUtilization")

Ask = Callable[..., Any]  # the name of a function of the binding, and arguments after the handle; None: no answer


class Sampling:
    """Takes passes. Sessions come and go; this stays, because the driver wants to know what was seen before."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._seen: dict[str, int] = {}  # time of the newest sample of processes, by uuid, as the driver counts
        self._asked: dict[str, int] = {}  # when it was asked for, by uuid, in microseconds since 1970

    def sample(self, session: Session) -> Pass:
        if not session.is_open:
            session.listing()  # so that GPUs report their errors in this session, too
        handles, shown, notes = session.handles()
        driver = session.driver()
        if not shown:
            raise failures.no_gpu(driver)
        gpus = []
        for index, uuid, handle in handles:
            try:
                gpus.append(self._gpu(session, index, uuid, handle))
            except UNREADABLE as error:
                notes.append(NOT_READ.format(index=index, why=reason(error)))
        if not gpus:
            raise failures.none_readable(shown, tuple(notes))
        return Pass(driver, tuple(gpus))

    def _gpu(self, session: Session, index: int, uuid: str, handle: object) -> Sample:
        ask = _asking(session, handle)
        memory = _memory(session, ask, handle)
        rates = ask("nvmlDeviceGetUtilizationRates")
        encoder, decoder = ask("nvmlDeviceGetEncoderUtilization"), ask("nvmlDeviceGetDecoderUtilization")
        remapped = ask("nvmlDeviceGetRemappedRows")
        temperature = _temperature(ask)
        return Sample(
            uuid,
            index,
            memory_total=memory.total if memory else None,
            memory_used=memory.used if memory else None,
            memory_free=memory.free if memory else None,
            memory_reserved=getattr(memory, "reserved", None),
            gpu_util=_percent(rates.gpu) if rates else None,
            memory_util=_percent(rates.memory) if rates else None,
            encoder_util=_percent(encoder[0]) if encoder else None,
            decoder_util=_percent(decoder[0]) if decoder else None,
            temperature=temperature,
            memory_temperature=_memory_temperature(ask),
            temperature_limit=_temperature_limit(ask, temperature),
            power=ask("nvmlDeviceGetPowerUsage"),
            power_limit=ask("nvmlDeviceGetEnforcedPowerLimit"),
            energy=ask("nvmlDeviceGetTotalEnergyConsumption"),
            sm_clock=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock=ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            pcie_replays=ask("nvmlDeviceGetPcieReplayCounter"),
            correctable_remapped_rows=remapped[0] if remapped else None,
            uncorrectable_remapped_rows=remapped[1] if remapped else None,
            row_remap_failure=bool(remapped[3]) if remapped else None,
            processes=self._processes(ask, uuid),
        )

    def _processes(self, ask: Ask, uuid: str) -> tuple[Process, ...] | None:
        lists = [listed for names in LISTS if (listed := _first(ask, names)) is not None]
        if not lists:
            return None
        memory: dict[int, int | None] = {}
        for listed in lists:
            for process in listed:
                known = (memory.get(process.pid), process.usedGpuMemory)
                # Each list tells all that the process has, so the amounts are not added.
                memory[process.pid] = max((amount for amount in known if amount is not None), default=None)
        use = self._sm_use(ask, uuid) if memory else {}
        idle = None if use is None else 0
        return tuple([Process(pid, amount, (use or {}).get(pid, idle)) for pid, amount in memory.items()])

    def _sm_use(self, ask: Ask, uuid: str) -> dict[int, int | None] | None:
        """Percent by pid, since the pass before; one that has not computed is missing. None: the GPU does not tell."""
        # The driver counts in the machine's time. After that was set back, what was seen before is still to come.
        since = min(self._seen.get(uuid, 0), self._asked.get(uuid, 0))
        samples = _first(ask, SM_USE, since)
        self._asked[uuid] = int(self._now() * 1e6)
        if samples is None:
            return None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            told = by_pid.setdefault(sample.pid, [])
            if max(sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) <= MOST_PERCENT:
                told.append(sample.smUtil)
                self._seen[uuid] = max(self._seen.get(uuid, 0), sample.timeStamp)
        return {pid: round(sum(told) / len(told)) if told else None for pid, told in by_pid.items()}


def _asking(session: Session, handle: object) -> Ask:
    def ask(name: str, *arguments: object) -> Any:
        function = getattr(pynvml, name, None)  # old bindings do not have all of them
        if function is None:
            return None
        try:
            return session.query(function, handle, *arguments)
        except NVMLError as error:
            if error.value in GONE or error.value in OF_THE_DRIVER:
                raise
            return () if name in SM_USE and error.value in IDLE else None

    return ask


def _percent(told: int) -> int | None:
    """More than all is not believed."""
    return told if told <= MOST_PERCENT else None


def _first(ask: Ask, names: Iterable[str], *arguments: object) -> Any:
    """The answer of the first function that has one."""
    return next((answer for name in names if (answer := ask(name, *arguments)) is not None), None)


def _memory(session: Session, ask: Ask, handle: object) -> Any:
    """Version 2 tells apart what is used and what the driver keeps for itself; in version 1 both are used."""
    version_2 = ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    return version_2 if version_2 is not None else session.query(pynvml.nvmlDeviceGetMemoryInfo, handle)


def _temperature(ask: Ask) -> int | None:
    degrees: int | None = _first(
        ask, ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), pynvml.NVML_TEMPERATURE_GPU
    )
    return degrees


def _temperature_limit(ask: Ask, temperature: int | None) -> int | None:
    """Newer GPUs tell only how far they are from it."""
    limit: int | None = ask("nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    if limit is not None or temperature is None:
        return limit
    margin: int | None = ask("nvmlDeviceGetMarginTemperature")
    return temperature + margin if margin is not None else None


def _memory_temperature(ask: Ask) -> int | None:
    values = ask("nvmlDeviceGetFieldValues", [MEMORY_TEMPERATURE])
    return values[0].value.uiVal if values and values[0].nvmlReturn == pynvml.NVML_SUCCESS else None
