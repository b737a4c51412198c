"""Events on the node: each failure and each recovery, and no flood of reasons that come and go."""

from typing import Any

from gpushare.validate.notices import Notices
from gpushare.validate.rules import verdict


class Heard:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def record(self, **event: Any) -> None:
        self.events.append(event)


def test_a_failure_names_the_check_the_reason_and_the_way_out() -> None:
    heard = Heard()
    Notices(heard, "gpu-a").tell("driver", verdict.failed("not loaded", "modprobe nvidia"), False)  # type: ignore[arg-type]
    (event,) = heard.events
    assert (event["kind"], event["name"], event["type"], event["reason"]) == (
        "Node", "gpu-a", "Warning", "ValidationFailed",
    )  # fmt: skip
    assert event["message"] == "driver: not loaded; try: modprobe nvidia"


def test_the_same_failure_again_is_told_and_another_reason_of_it_only_once() -> None:
    heard = Heard()
    notices = Notices(heard, "gpu-a")  # type: ignore[arg-type]
    notices.tell("driver", verdict.failed("a", "x"), False)
    notices.tell("driver", verdict.failed("b", "x"), True)
    notices.tell("driver", verdict.passed("fine"), True)
    notices.tell("driver", verdict.failed("a", "x"), False)
    assert [(event["message"][:10], event["again"]) for event in heard.events] == [
        ("driver: a;", True), ("driver: b;", False), ("driver pas", True), ("driver: a;", True),
    ]  # fmt: skip


def test_a_first_pass_a_skip_and_a_wait_are_no_events() -> None:
    heard = Heard()
    for said in (verdict.passed("fine"), verdict.skipped("x"), verdict.waiting("x")):
        Notices(heard, "gpu-a").tell("driver", said, False)  # type: ignore[arg-type]
    assert heard.events == []
