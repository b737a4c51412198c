"""The real nvidia-ml-py on a stand-in for NVIDIA's library; every test has GPUs of its own."""

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest

from tests.support.nvml import build, state


@pytest.fixture(scope="session")
def library() -> Path:
    try:
        return build.cached()
    except build.NotBuilt as missing:
        reason = str(missing)
    pytest.fail(reason, pytrace=False)


@pytest.fixture
def mock(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[state.Mock]:
    # Another test of this process may have loaded a real one; the binding keeps the functions it has found.
    if getattr(pynvml.nvmlLib, "_name", None) != str(library):
        pynvml.nvmlLib = ctypes.CDLL(str(library))
        pynvml._nvmlGetFunctionPointer_cache.clear()
    made = state.Mock(tmp_path / "gpus")
    made.show(state.card(0), state.card(1, 40536))
    monkeypatch.setenv(state.VARIABLE, str(made.path))
    yield made
    made.show()  # nothing hangs any more
    come_back()
    while is_initialised():
        pynvml.nvmlShutdown()


def come_back() -> None:
    """Wait for the threads that were left behind."""
    for thread in threading.enumerate():
        if thread.name.startswith("nvml"):
            thread.join(timeout=30)
            assert not thread.is_alive()


def is_initialised() -> bool:
    try:
        pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError_Uninitialized:
        return False
    return True


def event_sets() -> int:
    """How many were created and not freed."""
    return ctypes.c_int.in_dll(pynvml.nvmlLib, "mock_event_sets").value
