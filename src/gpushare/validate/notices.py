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
        """A new failure is always told, also if it is the same as a minute ago. Reasons that come and go are not."""
        if said.state == "failed":
            self._record("Warning", FAILED, f"{check}: {said.why}; try: {said.way}", again=not failed_before)
        elif said.state == "passed" and failed_before:
            self._record("Normal", PASSED, AGAIN.format(check=check, why=said.why), again=True)

    def _record(self, kind: str, reason: str, message: str, *, again: bool) -> None:
        name = self._node
        self._recorder.record(
            kind="Node", namespace="", name=name, uid=name, type=kind, reason=reason, message=message, longest=600,
            again=again,
        )  # fmt: skip
