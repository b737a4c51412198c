"""Who may compute on a GPU: its compute mode, read and set through NVML, by one session.

With MPS a GPU is in the mode EXCLUSIVE_PROCESS: only the MPS server has a context on it, so nobody gets past the limits
of MPS by accident. To set it, a process needs root. Changes last until the driver is unloaded.
"""

from typing import Final, NamedTuple, Protocol

import pynvml  # type: ignore[import-untyped]
from pynvml import NVMLError

from gpushare.gpu import failures
from gpushare.gpu.session import UNREADABLE, Session, reason
from gpushare.obs import errors

DEFAULT: Final = 0
EXCLUSIVE_PROCESS: Final = 3
NAMES: Final = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}

NOT_THERE: Final = "the driver shows no such GPU"
AS_ROOT: Final = "run it as root, in a privileged container with the nvidia runtime"


class Modes(NamedTuple):
    """`by_uuid`: the mode of each GPU that tells it. `unknown`: why another one does not, by uuid."""

    driver: str
    by_uuid: dict[str, int]
    unknown: dict[str, str]


class Moded(Protocol):
    """GPUs whose compute modes can be read and set. Calls end within a time limit, and raise UserError."""

    async def modes(self) -> Modes: ...

    async def set_mode(self, uuid: str, mode: int) -> None: ...


class NotAllowed(errors.UserError):
    """Only another user, or a privileged container, may set a mode."""


def read(session: Session) -> Modes:
    handles, shown, _ = session.handles()
    if not shown:
        raise failures.no_gpu(session.driver())
    modes, unknown = {}, {}
    for _, uuid, handle in handles:
        try:
            modes[uuid] = int(session.order(pynvml.nvmlDeviceGetComputeMode, handle))
        except UNREADABLE as error:
            unknown[uuid] = reason(error)
    return Modes(session.driver(), modes, unknown)


def set(session: Session, uuid: str, mode: int) -> None:
    handle = next((handle for _, known, handle in session.handles()[0] if known == uuid), None)
    if handle is None:
        raise _not_set(uuid, mode, NOT_THERE)
    try:
        session.order(pynvml.nvmlDeviceSetComputeMode, handle, mode)
    except pynvml.NVMLError_NoPermission as error:
        what = "this process may not set the compute mode of GPUs"
        raise NotAllowed(what, f"{uuid}: {error}", AS_ROOT, errors.CLUSTER_NOT_ASKED) from None
    except NVMLError as error:
        raise _not_set(uuid, mode, reason(error)) from None


def name(mode: int) -> str:
    """As nvidia-smi calls it."""
    return NAMES.get(mode, str(mode))


def _not_set(uuid: str, mode: int, why: str) -> errors.UserError:
    return errors.not_asked(f"the compute mode of {uuid} cannot be set to {name(mode)}", why, failures.ASK_THE_DRIVER)
