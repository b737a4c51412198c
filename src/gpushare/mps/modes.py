"""Compute modes of the GPUs: EXCLUSIVE_PROCESS while MPS runs, and afterwards what they were before.

What they were is written to a file before anything is changed. So after a crash the next start knows it, although the
driver then says EXCLUSIVE_PROCESS. The file is on a file system that a reboot empties, as a reboot empties the modes.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from gpushare.gpu import compute_mode
from gpushare.gpu.compute_mode import EXCLUSIVE_PROCESS, Moded, NotAllowed
from gpushare.gpu.device import Device
from gpushare.mps import commands, files
from gpushare.mps.control import Trouble
from gpushare.obs import errors, log
from gpushare.obs.errors import UserError

FILE: Final = "modes.json"
VERSION: Final = 1
LEAST_DRIVER: Final = 495  # CUDA 11.5, the first with memory limits of MPS clients
MIG: Final = "MIG is enabled on {gpus}: MPS needs GPUs without it"

logger = log.get(__name__)


class Gpus(Moded, Protocol):
    """What is asked of the driver here; `gpu.nvml` answers it."""

    async def devices(self) -> list[Device]: ...


class Record(msgspec.Struct):
    """The modes before ours, by uuid."""

    version: int
    modes: dict[str, int]


class Modes:
    """`folder`: where the record is."""

    def __init__(self, gpus: Gpus, folder: Path) -> None:
        self._gpus, self._path = gpus, folder / FILE

    async def take(self) -> Sequence[Device]:
        """All GPUs, in the mode for MPS. Trouble: that cannot be done now; UserError: a person has to do something."""
        try:
            devices = await self._gpus.devices()
            modes = await self._gpus.modes()
        except UserError as error:
            raise Trouble(f"{error.what}: {error.why}") from None
        _refuse_old(modes.driver)
        with_mig = [device.uuid for device in devices if device.mig]
        if with_mig:
            raise Trouble(MIG.format(gpus=", ".join(with_mig)))
        for uuid, why in modes.unknown.items():
            logger.warn("the compute mode of a GPU cannot be read, it is left alone", gpu=uuid, why=why)
        before = self._read()
        if set(modes.by_uuid) - set(before):
            self._write(modes.by_uuid | before)
        for uuid, mode in modes.by_uuid.items():
            if mode != EXCLUSIVE_PROCESS:
                await self._set(uuid, mode)
        return devices

    async def put_back(self) -> bool:
        """What they were before. Whether that is done for every GPU; what is not stays recorded."""
        left = {}
        for uuid, mode in self._read().items():
            try:
                await self._gpus.set_mode(uuid, mode)
                logger.info("compute mode put back", gpu=uuid, mode=compute_mode.name(mode))
            except UserError as error:
                logger.warn(error.what, gpu=uuid, **error.fields())
                left[uuid] = mode
        if left:
            self._write(left)
        else:
            self._path.unlink(missing_ok=True)
        return not left

    async def _set(self, uuid: str, before: int) -> None:
        try:
            await _to_its_end(self._gpus.set_mode(uuid, EXCLUSIVE_PROCESS))
        except NotAllowed:
            raise
        except UserError as error:
            raise Trouble(f"{error.what}: {error.why}") from None
        logger.info("compute mode set", gpu=uuid, mode=compute_mode.name(EXCLUSIVE_PROCESS),
                    before=compute_mode.name(before))  # fmt: skip

    def _read(self) -> dict[str, int]:
        try:
            record = msgspec.json.decode(self._path.read_bytes(), type=Record)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._unreadable(str(error)) from None
        if record.version != VERSION:
            raise self._unreadable(f"it is of version {record.version}, not {VERSION}")
        return record.modes

    def _unreadable(self, why: str) -> UserError:
        what = f"the record of compute modes {self._path} cannot be read"
        way = "set the modes with nvidia-smi -c, then delete that file"
        return errors.not_asked(what, why, way)

    def _write(self, modes: dict[str, int]) -> None:
        try:
            files.replace(self._path, msgspec.json.encode(Record(VERSION, modes)), lasting=True)
        except OSError as error:
            why = f"{error.strerror}; without it nobody could put them back after a crash"
            raise errors.not_asked(
                f"compute modes cannot be recorded in {self._path}", why, "mount that folder"
            ) from None


async def _to_its_end(call: Coroutine[Any, Any, None]) -> None:
    """Also if nobody waits for it any more: the driver goes on with it, and a mode put back meanwhile would be lost."""
    task = asyncio.create_task(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _refuse_old(driver: str) -> None:
    if commands.is_too_old(driver, LEAST_DRIVER):
        raise errors.not_asked(
            f"the NVIDIA driver {driver} is too old for MPS with memory limits",
            f"they exist from driver {LEAST_DRIVER} (CUDA 11.5) on",
            "a newer driver, or shares without MPS on this node",
        )
