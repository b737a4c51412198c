"""The CDI file of this node: made by nvidia-ctk where that is to be had, else of the device nodes alone.

It is there before the first container needs it, names only what exists, is replaced as a whole, and is removed at the
end: a runtime that finds a spec of vanished device nodes cannot start the container. nvidia-ctk may hang in the driver,
so it has a time limit.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpushare.node.nvidia import host
from gpushare.node.nvidia.rules import cdi_spec
from gpushare.node.nvidia.rules.cdi_spec import Object
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.obs import log
from gpushare.obs.errors import UserError

FOLDER: Final = "/var/run/cdi"
PROGRAM: Final = "nvidia-ctk"
LIMIT_SECONDS: Final = 30.0
END_SECONDS: Final = 1.0
NODES_ONLY: Final = "the CDI spec has device nodes only: the driver's libraries must come by other means"
NOT_WRITTEN: Final = "cannot write the CDI spec {path}"
MOUNT_IT: Final = "mount that folder of the host, as deploy/nvidia-ds.yaml does"

logger = log.get(__name__)


class CdiFile:
    """`uuids`: the GPUs that it names. `root`: where this machine's file system begins."""

    def __init__(self, folder: Path, root: Path, *, limit: float = LIMIT_SECONDS) -> None:
        self.uuids: frozenset[str] = frozenset()
        self._path, self._root, self._limit = folder / cdi_spec.FILE, root, limit
        self._made_of: object = None
        self._one_at_a_time = asyncio.Lock()

    async def keep(self, settings: Settings, gpus: Sequence[Gpu]) -> None:
        """Writes it, if it is needed and something has changed. Raises UserError."""
        async with self._one_at_a_time:
            await self._keep(settings, gpus)

    async def _keep(self, settings: Settings, gpus: Sequence[Gpu]) -> None:
        made_of = (settings, [(gpu.uuid, gpu.index, gpu.minor) for gpu in gpus])
        if not settings.cdi or made_of == self._made_of:
            return
        nodes = host.control_nodes(self._root)
        spec = await self._generated(settings, gpus) or cdi_spec.of_nodes(settings, gpus, nodes)
        self._write(spec)
        self._made_of, self.uuids = made_of, frozenset(gpu.uuid for gpu in gpus)
        logger.info("CDI spec written", path=str(self._path), devices=len(spec["devices"]))

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, spec: Object) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")  # runtimes read names with .json at the end
        try:
            draft.write_text(json.dumps(spec, indent=1))
            draft.replace(self._path)
        except OSError as error:
            self._made_of = None
            raise UserError(NOT_WRITTEN.format(path=self._path), str(error.strerror), MOUNT_IT) from None

    async def _generated(self, settings: Settings, gpus: Sequence[Gpu]) -> Object | None:
        """What nvidia-ctk says. None: it is not there, or its answer cannot be used."""
        here = settings.driver_root_here if self._at(settings.driver_root_here).is_dir() else settings.driver_root
        beside = str(Path(settings.nvidia_ctk).with_name(PROGRAM))  # the setting may name its sibling nvidia-cdi-hook
        places = (self._at(beside), self._at(settings.driver_root_here) / beside.lstrip("/"))
        program = next((place for place in places if os.access(place, os.X_OK)), None)
        if program is None:
            logger.warn(NODES_ONLY, why=f"there is no {places[0]}")
            return None
        words = [
            "cdi", "generate", "--format=json", "--mode=nvml", f"--vendor={cdi_spec.VENDOR}",
            f"--class={cdi_spec.CLASS}", f"--device-name-strategy={'index' if settings.by_index else 'uuid'}",
            f"--driver-root={here}", "--dev-root=/", f"--nvidia-ctk-path={settings.nvidia_ctk}",
        ]  # fmt: skip
        wanted = [cdi_spec.name(gpu, by_index=settings.by_index) for gpu in gpus]
        try:
            spec = json.loads(await _output(program, words, self._limit))
            why = cdi_spec.checked(spec, wanted)
            if not why:
                return cdi_spec.moved(spec, settings, here)
        except TimeoutError:
            why = f"no answer within {self._limit:g} s"
        except (OSError, ValueError) as error:
            why = str(error)
        except (AttributeError, LookupError, TypeError, RecursionError) as error:
            why = f"its answer is no CDI spec: {error!r}"
        logger.warn(NODES_ONLY, why=f"{program}: {why[:300]}")
        return None

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")


async def _output(program: Path, words: Sequence[str], limit: float) -> bytes:
    """What it prints. Raises ValueError with what it says if it fails."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(program, *words, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(limit):
            out, said = await running.communicate()
    finally:
        if running.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                running.kill()
            with contextlib.suppress(TimeoutError):  # one that hangs in the driver cannot be ended, and is left
                async with asyncio.timeout(END_SECONDS):
                    await running.wait()
    if running.returncode:
        raise ValueError(said.decode(errors="replace").strip()[-300:] or f"exit code {running.returncode}")
    return out
