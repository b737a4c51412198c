"""Whose a process is: its cgroup names the pod and the container. Reads /proc of the host."""

from collections.abc import Iterable, Mapping

from gpushare.node.usage.model import Owner


class Processes:
    """Of a `/proc` that shows the host's processes."""

    def __init__(self, proc: str) -> None:
        self._proc = proc

    @property
    def unknown(self) -> str:
        return "this container does not see the host's processes"

    def of(self, pids: Iterable[int]) -> Mapping[int, Owner]:
        return {}
