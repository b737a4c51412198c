"""Events on the node: a check fails, or passes again."""

from typing import Final

from gpushare.kube.events import Recorder
from gpushare.validate.rules.verdict import Verdict

FAILED, PASSED = "ValidationFailed", "ValidationPassed"  # reasons of events
AGAIN: Final = "{check} passes again: {why}"


class Notices:
    def __init__(self, recorder: Recorder, node: str) -> None:
        self._recorder, self._node = recorder, node

    def tell(self, check: str, said: Verdict, failed_before: bool) -> None:
        if said.state == "failed":
            self._record("Warning", FAILED, f"{check}: {said.why}; try: {said.way}")
        elif said.state == "passed" and failed_before:
            self._record("Normal", PASSED, AGAIN.format(check=check, why=said.why))

    def _record(self, kind: str, reason: str, message: str) -> None:
        name = self._node
        self._recorder.record(
            kind="Node", namespace="", name=name, uid=name, type=kind, reason=reason, message=message, longest=600,
            again=True,
        )  # fmt: skip
