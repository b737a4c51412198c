"""Whether a /proc shows the processes of the node, or only those of the container that looks at it.

Pure. The driver names processes by their ids on the node. A container sees those with `hostPID: true`, or in the node's
/proc if that is mounted somewhere. Without either, the same ids mean other processes, or none.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpushare.node.usage import cgroups

NOT_SEEN: Final = "this pod does not see the node's processes: set hostPID: true in its DaemonSet"
UNREADABLE: Final = "{proc} cannot be read: {why}"
FIRST_NAMESPACE: Final = "pid:[4026531836]"  # the kernel's number of the namespace that a machine begins with


class Seen(NamedTuple):
    """What a process can read of itself and of the first process in a /proc."""

    namespace: str  # of the pids of this process
    pids: int  # how many namespaces have a pid for it, from that of this /proc inwards
    own: str  # its cgroup file
    first: str  # that of pid 1


def unknown(seen: Seen, *, told: bool) -> str:
    """Why nobody can say whose a process is; empty: somebody can. `told`: a person named this /proc."""
    if seen.namespace == FIRST_NAMESPACE or seen.pids > 1:
        return ""
    # A node may be a container itself, so another namespace need not be a pod's. Then pid 1 tells.
    return NOT_SEEN if _is_of_a_pod(seen.first) or (not told and _same_container(seen)) else ""


def _is_of_a_pod(text: str) -> bool:
    return bool(cgroups.owners(text))


def _same_container(seen: Seen) -> bool:
    """Pid 1 and this process are in one cgroup: both are in one container, or all processes of a machine are in one. It
    counts as a container, unless a person says otherwise."""
    return _paths(seen.first) == _paths(seen.own)


def _paths(text: str) -> Sequence[str]:
    return sorted({line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2})
