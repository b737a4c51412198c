"""One pass over the figures of all GPUs, through NVML, by one session."""

import pynvml  # type: ignore[import-untyped]

from gpushare.gpu.sample import Pass, Sample
from gpushare.gpu.session import Session


def sample(session: Session) -> Pass:
    handles, _, _ = session.handles()
    return Pass(session.driver(), tuple([_gpu(session, index, uuid, handle) for index, uuid, handle in handles]))


def _gpu(session: Session, index: int, uuid: str, handle: object) -> Sample:
    memory = session.query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Sample(uuid, index, memory_total=memory.total if memory else None)
