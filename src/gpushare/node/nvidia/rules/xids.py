"""Which errors of the driver (Xids) make a GPU unhealthy: NVIDIA's two environment variables, as documented.

Pure. `DP_DISABLE_HEALTHCHECKS` is `all`, `xids`, or a list of Xids to ignore beside those of applications.
`DP_ENABLE_HEALTHCHECKS` is `all` or a list of Xids that count nevertheless, also where all are disabled; NVIDIA's
plugin looks at no Xid in that case.
"""

from collections.abc import Callable
from typing import Final

from gpushare.gpu import health
from gpushare.obs.errors import UserError

DISABLE: Final = "DP_DISABLE_HEALTHCHECKS"
ENABLE: Final = "DP_ENABLE_HEALTHCHECKS"
ALL: Final = ("all", "xids")


def counting(disable: str, enable: str) -> Callable[[int], bool]:
    """`disable`, `enable`: the two variables; empty if they are not set."""
    none, off = _read(DISABLE, disable)
    every, on = _read(ENABLE, enable)
    return lambda xid: every or xid in on or (not none and xid not in off and health.of_the_gpu(xid))


def _read(variable: str, text: str) -> tuple[bool, frozenset[int]]:
    """Whether it means all Xids, else which."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if any(word in ALL for word in words):
        return True, frozenset()
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) < 10):
            why = "it is all, or numbers of Xids with commas between them"
            raise UserError(f'{variable} has "{word:.20}"', why, f"{variable}=79,94")
    return False, frozenset(map(int, words))
