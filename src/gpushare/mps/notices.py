"""Who is told what about the daemon: events on this node, and on the pods whose programs it served.

A CUDA program that was a client of a daemon that is gone has lost its GPU: every call fails, and nothing brings it back
but a new start of the program. kubelet does not notice, so the pod's owner is told.
"""

from collections.abc import Callable
from typing import Final

from gpushare.core.facts import objects
from gpushare.kube.events import Recorder

LOST, FAILS, WORKS = "MpsDaemonLost", "MpsDaemonFails", "MpsDaemonWorks"  # reasons of events
TO_PODS: Final = "Its CUDA programs have lost the GPU and must be restarted: {why}"
TO_NODE: Final = "{why}; pods that used it: {count}"
WORKS_AGAIN: Final = "the MPS daemon serves clients again"


class Notices:
    """`clients`: the pods that use the daemon now."""

    def __init__(self, recorder: Recorder, node: str, clients: Callable[[], list[objects.Pod]]) -> None:
        self._recorder, self._node, self._clients = recorder, node, clients
        self._bad = False  # the last that was told

    def lost(self, why: str) -> None:
        """It served clients, and does not any more."""
        clients = self._clients()
        for pod in clients:
            self._recorder.record(
                kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid,
                type="Warning", reason=LOST, message=TO_PODS.format(why=why),
            )  # fmt: skip
        self._tell("Warning", LOST, TO_NODE.format(why=why, count=len(clients)))

    def fails(self, why: str) -> None:
        """It cannot be started."""
        self._tell("Warning", FAILS, why)

    def notice(self, what: str) -> None:
        """It runs, but something about this node should be changed."""
        self._tell("Warning", FAILS, what)

    def works(self) -> None:
        if self._bad:
            self._tell("Normal", WORKS, WORKS_AGAIN)

    def _tell(self, kind: str, reason: str, message: str) -> None:
        self._bad = kind != "Normal"
        self._recorder.record(
            kind="Node", namespace="", name=self._node, uid=self._node, type=kind, reason=reason, message=message
        )  # fmt: skip
