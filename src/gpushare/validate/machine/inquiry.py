"""A process of its own that asks the driver once and writes the answer as JSON: `python -m`, started by `asking`.

So a driver that hangs or crashes takes nobody with it, and a new library is used after an upgrade. Below the machine's
root, as nvidia-smi would be run there: NVML starts nvidia-modprobe of the machine if device nodes are missing.
"""

import contextlib
import ctypes
import os
import sys

import msgspec
import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu import failures
from gpushare.gpu.session import Session
from gpushare.obs.errors import UserError
from gpushare.validate.rules.driver import Answer, Gpu

# NVIDIA's library needs these. From another root it would get the machine's, which do not fit this process.
PARTS_OF_LIBC = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")
DOES_NOT_LOAD = "{library} cannot be loaded"
REINSTALL = "on the node: nvidia-smi; install the driver again, for this kind of machine"


def answer(root: str, library: str, path: str) -> Answer:
    """`library`: its path below `root`; `path`: the same for a process that cannot change its root."""
    for name in PARTS_OF_LIBC:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    try:
        if root != "/":
            os.chroot(root)
            os.chdir("/")
        path = library
    except OSError:
        pass  # not as root
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        return Answer(what=DOES_NOT_LOAD.format(library=library), why=str(error), way=REINSTALL)
    return own_answer()


def own_answer() -> Answer:
    """Of the library that this process finds by itself."""
    return _asked(Session())


def _asked(session: Session) -> Answer:
    try:
        listing = session.listing()
        version = session.driver()
        if not listing.shown:
            return _failed(failures.no_gpu(version))
        if not listing.devices:
            return _failed(failures.none_readable(listing.shown, listing.notes))
    except NVMLError as error:
        return _failed(failures.failed(error, session.doing))
    finally:
        session.close()
    return Answer(version, tuple([Gpu(gpu.index, gpu.uuid, gpu.minor, gpu.name, gpu.fault) for gpu in listing.devices]))


def _failed(error: UserError) -> Answer:
    return Answer(what=error.what, why=error.why, way=error.way)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(answer(*sys.argv[1:])))
