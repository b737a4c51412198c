"""What the status is made of: of each node and each pod only what people have to know."""

from typing import NamedTuple


class Problem(NamedTuple):
    """`check`: which of a node's checks found it; empty: none of them. `text`: what is wrong, for a person. `more`:
    since when, and what to do."""

    check: str
    text: str
    more: str = ""


class NodeFacts(NamedTuple):
    """`gpus`: it has GPUs of NVIDIA. `served`: parts run there. `checked`: its checks have been made. `part`: the
    DaemonSet of the node part that has to run there; empty: none."""

    name: str
    gpus: bool
    served: bool
    checked: bool
    problems: tuple[Problem, ...] = ()
    part: str = ""


class PodFacts(NamedTuple):
    """`problem`: why it is not ready, empty if it is, or if it only needs a moment. `ends`: when it is to be gone, if
    it has been deleted."""

    name: str
    component: str
    node: str
    ready: bool
    problem: str = ""
    ends: str = ""
