"""What the node part makes of the report of `gpushare mps`: only a fresh "up" counts as working."""

import json

import pytest

from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import Status

NOW = 1_000_000.0
UP = Status(status.VERSION, "up", "", NOW - 500, 4711, NOW - 3)


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(status.write(UP)), **changes}).encode()


def test_a_fresh_report_that_it_is_up_is_no_problem() -> None:
    assert status.problem(status.write(UP), NOW) == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, status.NOT_THERE),
        (b"", status.NOT_READ),
        (b"{", status.NOT_READ),
        (b"[" * 100_000, status.NOT_READ),
        (b"\xff\xfe", status.NOT_READ),
        (changed(state="well"), status.NOT_READ),
        (changed(pid="x"), status.NOT_READ),
        (changed(version=2), status.OTHER_VERSION),
        (changed(heartbeat=NOW - 21), status.SILENT),
        (changed(heartbeat=NOW + 3600), status.SILENT),
        (changed(state="down", why="it hangs"), "it hangs"),
        (changed(state="down", why="it hangs", heartbeat=0.0), "it hangs"),
        (changed(state="starting", why=""), status.NO_REASON),
        (changed(state="down", why="two\nlines"), "two lines"),
        (changed(replicas=4), "the daemon does not divide each GPU by 1 yet"),
    ],
)
def test_anything_else_is_a_problem_and_has_its_sentence(content: bytes | None, why: str) -> None:
    assert status.problem(content, NOW) == why


def test_replicas_are_sold_only_when_the_daemon_has_divided_the_gpus() -> None:
    assert status.problem(changed(replicas=4), NOW, 4) == ""
    assert status.problem(status.write(UP), NOW, 4) == "the daemon does not divide each GPU by 4 yet"


def test_a_sentence_does_not_change_while_time_passes() -> None:
    old = changed(heartbeat=NOW - 30)
    assert status.problem(old, NOW) == status.problem(old, NOW + 5)


def test_a_long_reason_is_cut() -> None:
    long = Status(status.VERSION, "down", "x" * 10_000, NOW, 1, NOW)
    assert len(status.write(long)) < 1000
    assert len(status.problem(status.write(long), NOW)) == status.LONGEST_WHY
