"""One conversation with NVML: initialised, asked, let go. Blocking, and used by one thread at a time.

All of it goes through one gate, which makes what a driver or GPU does not know a value. A fault of one GPU is said of
that GPU; only what makes the whole driver unusable is an NVMLError to the caller, which is `nvml`.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu.device import Device, Xid

MIB = 1024 * 1024
MOST_AT_ONCE = 64  # events; a GPU that reports more is heard again at once

NO_MEMORY_SIZE = "the driver does not say how much memory it has"
NEEDS = "the driver asks for {action}"
NOT_READ = "GPU {index} cannot be read: {why}"
NOT_HEARD = "GPU {index} does not report its errors: {why}"

UNREADABLE = (NVMLError, UnicodeDecodeError)  # the binding decodes whatever a broken driver returns

# The driver as a whole is unusable, whichever GPU was asked about.
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
    """All GPUs that could be named, how many the driver shows, and what could not be found out."""

    devices: list[Device]
    shown: int
    notes: tuple[str, ...]


class Session:
    """Not open until it is first asked something."""

    def __init__(self) -> None:
        self.doing = ""  # the NVML function called last: another thread reads it to say where this one hangs
        self.is_open = False
        self._events: Any = None
        self._heard: dict[int | None, str] = {}  # uuids of the GPUs that report their errors, by the handle's address
        self._deaf: dict[str, str] = {}  # why others do not, by uuid

    def order(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The one gate to NVML."""
        self.doing = function.__name__
        return function(*arguments)

    def query(self, function: Callable[..., Any], *arguments: object) -> Any:
        """The same for what not every driver or GPU knows: it is None then."""
        try:
            return self.order(function, *arguments)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return None

    def open(self) -> None:
        # Without the flag, a machine without GPUs is an error, and not told apart from a broken driver.
        self.order(pynvml.nvmlInitWithFlags, pynvml.NVML_INIT_FLAG_NO_GPUS)
        self.is_open = True
        self._events = self.query(pynvml.nvmlEventSetCreate)

    def close(self) -> None:
        """Whatever state it is in; afterwards it can be opened again."""
        try:
            if self._events is not None:
                self.order(pynvml.nvmlEventSetFree, self._events)
        except NVMLError:
            pass  # shutting down lets go of it as well
        try:
            if self.is_open:
                self.order(pynvml.nvmlShutdown)
        except NVMLError:
            pass  # there is nothing to let go of
        self.is_open = False
        self._events = None
        self._heard.clear()
        self._deaf.clear()

    def listing(self) -> Listing:
        """All GPUs, each asked anew: handles do not outlive a GPU's reset. From here on their errors are heard."""
        if not self.is_open:
            self.open()
        count = self.order(pynvml.nvmlDeviceGetCount)
        devices, notes = [], []
        for index in range(count):
            try:
                handle = self.order(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = self.order(pynvml.nvmlDeviceGetUUID, handle)
            except UNREADABLE as error:
                notes.append(NOT_READ.format(index=index, why=_reason(error)))
                continue
            devices.append(self._device(index, uuid, handle))
            self._hear(uuid, handle)
            if uuid in self._deaf:
                notes.append(NOT_HEARD.format(index=index, why=self._deaf[uuid]))
        return Listing(devices, count, tuple(notes))

    def driver(self) -> str:
        """The version of the driver, as people know it."""
        try:
            return str(self.order(pynvml.nvmlSystemGetDriverVersion))
        except UNREADABLE:
            return "of an unknown version"

    def wait(self, milliseconds: int) -> list[Xid] | None:
        """The errors reported by then, as soon as there is one. None: no GPU can be heard, so there was no waiting."""
        if not self.is_open:
            self.listing()
        if not self._heard:
            return None
        xids: list[Xid] = []
        for turn in range(MOST_AT_ONCE):
            try:
                event = self.order(pynvml.nvmlEventSetWait, self._events, 0 if turn else milliseconds)
            except pynvml.NVMLError_Timeout:
                return xids
            except pynvml.NVMLError_GpuIsLost:
                return xids or None  # from now on this is all the set says, at once, each time
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
                fault=self._needs(handle) if memory else NO_MEMORY_SIZE,
            )
        except UNREADABLE as error:
            return Device(index, uuid, None, "", "", 0, "", fault=_reason(error))

    def _needs(self, handle: Any) -> str:
        values = self.query(pynvml.nvmlDeviceGetFieldValues, handle, [RECOVERY_ACTION])
        if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS or values[0].value.uiVal == NO_ACTION:
            return ""
        action = values[0].value.uiVal
        return NEEDS.format(action=ACTIONS.get(action, f"recovery action {action}"))

    def _hear(self, uuid: str, handle: Any) -> None:
        """Ask for reports of one GPU. A GPU that gives none is no worse for that: it is still seen."""
        if uuid in self._deaf or uuid in self._heard.values() or self._events is None:
            return
        kind = pynvml.nvmlEventTypeXidCriticalError
        try:
            if (self.query(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & kind:
                self.order(pynvml.nvmlDeviceRegisterEvents, handle, kind, self._events)
                self._heard[_address(handle)] = uuid
            else:
                self._deaf[uuid] = "it has no such reports"
        except NVMLError as error:
            self._deaf[uuid] = _reason(error)

    def _whose(self, handle: Any) -> str | None:
        return self._heard.get(_address(handle))


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _reason(error: Exception) -> str:
    """The driver's words for what is wrong with one GPU; what is wrong with all of them is raised again."""
    if isinstance(error, NVMLError) and error.value in OF_THE_DRIVER:
        raise error
    return str(error)
