"""One session with NVML: opened, used, closed. Calls block, and only one thread uses it at a time.

Every call goes through `order` or `query`. What a driver or GPU does not support is None. A fault of one GPU becomes
part of that GPU's data; an NVMLError is raised only if the whole driver is unusable.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu.device import Device, Versions, Xid

MIB = 1024 * 1024
MOST_AT_ONCE = 64  # events; more are read by the next call

NO_MEMORY_SIZE = "the driver does not say how much memory it has"
NEEDS = "the driver asks for {action}"
NOT_READ = "GPU {index} cannot be read: {why}"
TWICE = "it has the uuid of another GPU"
NO_REPORTS = "GPU {index} does not report its errors: {why}"

UNREADABLE = (NVMLError, UnicodeDecodeError)  # the binding decodes whatever a broken driver returns

# With these errors the whole driver is unusable, not only one GPU.
OF_THE_DRIVER = frozenset(
    {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
)

# What the driver wants done before a GPU is used again. Known to drivers from 570 on, and not to every binding.
RECOVERY_ACTION = 230
NO_ACTION = 0
ACTIONS = {
    1: "a GPU reset",
    2: "a reboot of the node",
    3: "an end of peer-to-peer traffic",
    4: "a GPU reset",
    6: "a bus reset",
    7: "a reboot of the node",
}


class Listing(NamedTuple):
    """All GPUs with a known uuid, how many the driver shows, and what could not be read."""

    devices: list[Device]
    shown: int
    notes: tuple[str, ...]


class Session:
    """Opened by the first call."""

    def __init__(self) -> None:
        self.doing = ""  # the NVML function called last: another thread reads it if this one hangs
        self.is_open = False
        self._events: Any = None
        self._reporting: dict[int | None, str] = {}  # uuids of GPUs that report their errors, by the handle's address
        self._silent: dict[str, str] = {}  # why the other GPUs do not, by uuid

    def order(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The one gate to NVML."""
        self.doing = function.__name__
        return function(*arguments)

    def query(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The same, but None if this driver or GPU does not support the call."""
        try:
            return self.order(function, *arguments)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return None

    def open(self) -> None:
        # Without the flag, a machine without GPUs looks like a broken driver.
        self.order(pynvml.nvmlInitWithFlags, pynvml.NVML_INIT_FLAG_NO_GPUS)
        self.is_open = True
        self._events = self.query(pynvml.nvmlEventSetCreate)

    def close(self) -> None:
        """In any state. It can be opened again afterwards."""
        try:
            if self._events is not None:
                self.order(pynvml.nvmlEventSetFree, self._events)
        except NVMLError:
            pass  # the shutdown frees it, too
        try:
            if self.is_open:
                self.order(pynvml.nvmlShutdown)
        except NVMLError:
            pass  # it was not open
        self.is_open = False
        self._events = None
        self._reporting.clear()
        self._silent.clear()

    def listing(self) -> Listing:
        """All GPUs. From now on the driver reports their errors."""
        handles, shown, notes = self.handles()
        devices = []
        for index, uuid, handle in handles:
            devices.append(self._device(index, uuid, handle))
            self._ask_for_reports(uuid, handle)
            if uuid in self._silent:
                notes.append(NO_REPORTS.format(index=index, why=self._silent[uuid]))
        return Listing(devices, shown, tuple(notes))

    def handles(self) -> tuple[list[tuple[int, str, Any]], int, list[str]]:
        """Index, uuid and a new handle of each GPU, because a reset makes old handles invalid; how many GPUs the driver
        shows; and which cannot be read."""
        if not self.is_open:
            self.open()
        count = self.order(pynvml.nvmlDeviceGetCount)
        handles: dict[str, tuple[int, str, Any]] = {}
        notes = []
        for index in range(count):
            try:
                handle = self.order(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = self.order(pynvml.nvmlDeviceGetUUID, handle)
                if handles.setdefault(uuid, (index, uuid, handle))[0] != index:
                    notes.append(NOT_READ.format(index=index, why=TWICE))
            except UNREADABLE as error:
                notes.append(NOT_READ.format(index=index, why=reason(error)))
        return list(handles.values()), count, notes

    def driver(self) -> str:
        """The version of the driver, as people know it."""
        try:
            return str(self.order(pynvml.nvmlSystemGetDriverVersion))
        except UNREADABLE:
            return "of an unknown version"

    def versions(self) -> Versions:
        if not self.is_open:
            self.open()
        try:
            driver = self.query(pynvml.nvmlSystemGetDriverVersion) or ""
        except UnicodeDecodeError:
            driver = ""
        number = self.query(pynvml.nvmlSystemGetCudaDriverVersion_v2)  # 12040 is 12.4
        return Versions(driver, f"{number // 1000}.{number % 1000 // 10}" if number else "")

    def wait(self, milliseconds: int) -> list[Xid] | None:
        """The errors reported, as soon as there is one. None: no GPU reports errors, so there was no wait."""
        if not self.is_open:
            self.listing()
        if not self._reporting:
            return None
        xids: list[Xid] = []
        for turn in range(MOST_AT_ONCE):
            try:
                event = self.order(pynvml.nvmlEventSetWait, self._events, 0 if turn else milliseconds)
            except pynvml.NVMLError_Timeout:
                return xids
            except pynvml.NVMLError_GpuIsLost:
                return xids or None  # from now on NVML returns this at once, each time
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                xids.append(Xid(self._whose(event.device), event.eventData))
        return xids

    def _device(self, index: int, uuid: str, handle: Any) -> Device:
        try:
            memory = self.query(pynvml.nvmlDeviceGetMemoryInfo, handle)
            mig = self.query(pynvml.nvmlDeviceGetMigMode, handle)
            pci = self.query(pynvml.nvmlDeviceGetPciInfo, handle)
            capability = self.query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
            return Device(
                index=index,
                uuid=uuid,
                minor=self.query(pynvml.nvmlDeviceGetMinorNumber, handle),
                bus=pci.busId if pci else "",
                name=self.query(pynvml.nvmlDeviceGetName, handle) or "",
                memory_mib=memory.total // MIB if memory else 0,
                capability=".".join(map(str, capability)) if capability else "",
                mig=bool(mig) and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
                mig_capable=mig is not None,
                fault=self._needs(handle) if memory else NO_MEMORY_SIZE,
            )
        except UNREADABLE as error:
            return Device(index, uuid, None, "", "", 0, "", fault=reason(error))

    def _needs(self, handle: Any) -> str:
        values = self.query(pynvml.nvmlDeviceGetFieldValues, handle, [RECOVERY_ACTION])
        if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS or values[0].value.uiVal == NO_ACTION:
            return ""
        action = values[0].value.uiVal
        return NEEDS.format(action=ACTIONS.get(action, f"recovery action {action}"))

    def _ask_for_reports(self, uuid: str, handle: Any) -> None:
        """Asks the driver to report the errors of one GPU. One without reports is usable, too."""
        if uuid in self._silent or uuid in self._reporting.values() or self._events is None:
            return
        kind = pynvml.nvmlEventTypeXidCriticalError
        try:
            if (self.query(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & kind:
                self.order(pynvml.nvmlDeviceRegisterEvents, handle, kind, self._events)
                self._reporting[_address(handle)] = uuid
            else:
                self._silent[uuid] = "it has no such reports"
        except NVMLError as error:
            self._silent[uuid] = reason(error)

    def _whose(self, handle: Any) -> str | None:
        return self._reporting.get(_address(handle))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def reason(error: Exception) -> str:
    """The driver's words for a fault of one GPU. A fault of the whole driver is raised again."""
    if isinstance(error, NVMLError) and error.value in OF_THE_DRIVER:
        raise error
    return str(error)
