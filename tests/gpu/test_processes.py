"""As a program meets the library: found through the loader, missing, or hanging while the program wants to end."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.nvml import state
from tests.support.nvml.build import LIBRARY

PROGRAM = """
import asyncio
from gpushare.obs.errors import UserError
from gpushare.gpu.nvml import Nvml

async def main():
    gpus = Nvml(limit=LIMIT)
    try:
        print([(gpu.name, gpu.memory_mib) for gpu in await gpus.devices()])
    except UserError as error:
        print(error.what, error.why, error.way, sep="\\n")
    await gpus.close()

asyncio.run(main())
"""


def run(folder: Path, gpus: Path, limit: float = 30) -> list[str]:
    """What the program says, with the library looked for in that folder first."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), state.VARIABLE: str(gpus)}
    program = PROGRAM.replace("LIMIT", str(limit))
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_library_is_found_as_the_loader_finds_it(library: Path, tmp_path: Path) -> None:
    gpus = tmp_path / "gpus"
    state.Mock(gpus).show(state.card(0), state.card(1, 40536))
    assert run(library.parent, gpus) == ["[('Tesla T4', 16276), ('Tesla T4', 40536)]"]


def test_a_missing_library_is_said_in_three_lines(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).touch()  # cannot be loaded, and hides a real one
    assert run(tmp_path, tmp_path / "gpus") == [
        "libnvidia-ml.so.1 not found",
        "no NVIDIA driver in this container, or it does not run with the nvidia runtime",
        "on the node: nvidia-smi; then runtimeClassName: nvidia in the DaemonSet, or nvidia as default runtime",
    ]


def test_a_hanging_driver_does_not_keep_the_program_from_ending(library: Path, tmp_path: Path) -> None:
    gpus = tmp_path / "gpus"
    state.Mock(gpus).show(state.card(0), rules=("hang=nvmlDeviceGetCount_v2",))
    assert run(library.parent, gpus, limit=0.05)[0] == "the NVIDIA driver does not answer"
