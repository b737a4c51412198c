"""`gpushare validate --wait-for`: an init container that waits for ready files, and says for what.

It has to start fast and costs nothing while it waits. What is imported later is only needed when it waits for long.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpushare.core.facts import names
from gpushare.obs import log

LOOK_SECONDS: Final = 0.5
TELL_SECONDS: Final = 30.0
GENERAL_WAY: Final = "kubectl logs of gpushare-validator on this node, or: gpushare validate {node}"

logger = log.get(__name__)


class Reason(NamedTuple):
    """Why a check has not passed, and what to do."""

    why: str
    way: str


Asked = Callable[[str], Reason | None]  # the first check that is waited for; None: nobody knows


def wait(
    files: Sequence[tuple[str, str]],
    node: str,
    asked: Asked,
    *,
    folder: Path = Path(names.VALIDATIONS_FOLDER),
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Until all of these files are there: checks with the names of their files. `asked`: tells more about a check."""
    missing = _missing(files, folder)
    if not missing:
        logger.info("all checks have passed", checks=", ".join(check for check, _ in files))
        return
    began = told = clock()
    logger.info(
        "waiting for checks of this node", checks=", ".join(missing), folder=str(folder), node=node,
        **{"try": GENERAL_WAY.format(node=node)},
    )  # fmt: skip
    while missing := _missing(files, folder):
        sleep(LOOK_SECONDS)
        if clock() - told >= TELL_SECONDS:
            told = clock()
            reason = asked(missing[0]) or Reason("gpushare-validator has not said why", GENERAL_WAY.format(node=node))
            logger.warn(
                "still waiting for checks of this node", checks=", ".join(missing), since_seconds=round(told - began),
                why=reason.why, **{"try": reason.way or GENERAL_WAY.format(node=node)},
            )  # fmt: skip
    logger.info("the checks have passed", after_seconds=round(clock() - began))


def _missing(files: Sequence[tuple[str, str]], folder: Path) -> list[str]:
    return [check for check, name in files if not os.access(folder / name, os.F_OK)]
