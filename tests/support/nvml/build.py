"""Builds the stand-in for NVIDIA's library from mock_nvml.c, whose header says how GPUs are described to it.

Used by these tests, and by whoever needs a container in which the driver seems to be there: `build(FOLDER)`.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_name("mock_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{LIBRARY}")
NO_COMPILER = "the stand-in for NVIDIA's library needs gcc: install it (Debian, Ubuntu: apt-get install gcc libc6-dev)"


class NotBuilt(Exception):
    """One sentence: what is missing, or what the compiler said first."""


def build(target: Path) -> Path:
    """Write the library into that folder, and say where. It appears at once and whole, whoever else builds it."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise NotBuilt(NO_COMPILER)
    target.mkdir(parents=True, exist_ok=True)
    made = target / f".{LIBRARY}.{os.getpid()}"
    done = subprocess.run(
        [compiler, *FLAGS, "-o", str(made), str(SOURCE), "-lpthread"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        raise NotBuilt(f"gcc cannot build the stand-in for NVIDIA's library: {said[0]}")
    return made.rename(target / LIBRARY)


def cached() -> Path:
    """The library, built once for each version of its source."""
    sources = b"".join(file.read_bytes() for file in sorted(SOURCE.parent.glob("mock_*.[ch]")))
    version = hashlib.sha256(sources + repr(FLAGS).encode()).hexdigest()[:12]
    folder = ROOT / ".build" / "nvml" / version
    library = folder / LIBRARY
    return library if library.exists() else build(folder)
