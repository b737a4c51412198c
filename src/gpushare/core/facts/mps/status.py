"""How the MPS daemon of a node is: the status file that `gpushare mps` writes, and what the node part makes of it.

Pure. The file is on the node, because both run there: the API server may be away while the daemon fails. Sentences here
get into the node's annotation, so they name no time that passes: the annotation would change all the time.
"""

from typing import Final, Literal

import msgspec

FILE: Final = "status.json"
READY: Final = ".ready"  # a file that exists only while the daemon serves clients, for scripts and start orders
VERSION: Final = 1
LARGEST: Final = 65536  # bytes of the file
OLD_SECONDS: Final = 20.0  # without a sign of life; the supervisor gives one every few seconds
LONGEST_WHY: Final = 160  # characters

NOT_THERE: Final = "gpushare mps has not reported on this node"
NOT_READ: Final = "the report of gpushare mps cannot be read"
OTHER_VERSION: Final = "the report of gpushare mps is of another version"
SILENT: Final = "gpushare mps no longer reports"
NO_REASON: Final = "gpushare mps gives no reason"
OTHER_SHARES: Final = "the daemon does not divide each GPU by {replicas} yet"

State = Literal["starting", "up", "down"]


class Status(msgspec.Struct, frozen=True):
    """`heartbeat` and `since` are seconds since 1970: of the last sign of life, and of the change to this state.
    `replicas`: into so many parts the daemon divides each GPU; 1: clients get no limit from it."""

    version: int
    state: State
    why: str
    since: float
    pid: int
    heartbeat: float
    replicas: int = 1


_decoder = msgspec.json.Decoder(Status)


def write(status: Status) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(status, why=status.why[:LONGEST_WHY]))


def problem(content: bytes | None, now: float, replicas: int = 1) -> str:
    """Why the daemon serves nobody, out of the file's content; empty: it serves clients. None: there is no file."""
    if content is None:
        return NOT_THERE
    try:
        status = _decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return NOT_READ
    if status.version != VERSION:
        return OTHER_VERSION
    if status.state != "up":  # a reason stays true although nobody repeats it
        return " ".join(status.why[:LONGEST_WHY].split()) or NO_REASON
    if not abs(now - status.heartbeat) <= OLD_SECONDS:
        return SILENT
    return "" if status.replicas == replicas else OTHER_SHARES.format(replicas=replicas)
