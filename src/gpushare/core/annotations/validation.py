"""How the checks of a node went: the node annotation `gpushare.io/validation`, written by `gpushare validate`.

The operator reads it for the status of its policy, and people read it with `kubectl describe node`. A check is one of
`CHECKS`, in the order in which they are made: each needs those before it.
"""

from typing import Final, Literal

import msgspec

from gpushare.core.facts import names, objects

CHECKS: Final = ("driver", "toolkit", "plugin", "mps", "workload")
State = Literal["passed", "failed", "waiting", "skipped"]  # waiting: for a check before it


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """`since`: when this state began, as the API server writes times. `why`, `way`: a sentence each."""

    state: State
    since: str
    why: str = ""
    way: str = ""


Checks = dict[str, Check]


def read(node: objects.Node) -> Checks | None:
    """None: the node says nothing, or what cannot be understood."""
    written = (node.metadata.annotations or {}).get(names.VALIDATION)
    if written is None:
        return None
    try:
        return msgspec.json.decode(written, type=Checks)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def write(checks: Checks) -> str:
    return msgspec.json.encode(checks).decode()
