"""`gpushare validate --inside`: what a container sees, in the pod that the last check tries.

The answer stands in the termination message, which the validator reads with the pod: so it needs no right to read logs.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpushare.core.facts import names
from gpushare.obs import errors
from gpushare.validate.machine import inquiry
from gpushare.validate.rules.driver import Answer
from gpushare.validate.workload.pod import Seen

TERMINATION_LOG: Final = Path("/dev/termination-log")
FAILED: Final = 1


def run(environment: Mapping[str, str], message: Path = TERMINATION_LOG) -> tuple[str, int]:
    """The lines for the log, and the exit code."""
    answer = inquiry.own_answer()
    visible = environment.get(names.VISIBLE_DEVICES, "")
    seen = Seen([gpu.uuid for gpu in answer.gpus], visible, f"{answer.what}: {answer.why}" if answer.what else "")
    with contextlib.suppress(OSError):
        message.write_bytes(msgspec.json.encode(seen))
    return _page(answer, visible), FAILED if answer.what else 0


def _page(answer: Answer, visible: str) -> str:
    if answer.what:
        return errors.UserError(answer.what, answer.why, answer.way).render() + "\n"
    lines = [f"driver {answer.version}", *(f"GPU {gpu.index}: {gpu.uuid} {gpu.name}" for gpu in answer.gpus)]
    return "".join(f"{line}\n" for line in (*lines, f"{names.VISIBLE_DEVICES}={visible}"))
