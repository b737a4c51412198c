"""Events about a policy say what became ready, what did not, and why; once."""

from typing import Any

from gpushare.operator.notices import Notice, notices

Object = dict[str, Any]


def status(state: str = "ready", failure: str = "", **components: tuple[str, str]) -> Object:
    reason = "ReconcileFailed" if failure else "Ready"
    return {
        "state": state,
        "conditions": [{"type": "Error", "reason": reason, "message": failure}],
        "components": [{"name": name, "state": how, "message": why} for name, (how, why) in components.items()],
    }


def test_a_component_that_changes_is_told_with_its_reason() -> None:
    ready, broken = status(mps=("ready", "")), status("notReady", mps=("notReady", "gpu-a: no daemon"))
    assert list(notices({}, ready)) == [Notice("Normal", "ComponentReady", "mps is ready")]
    assert list(notices(ready, broken)) == [
        Notice("Warning", "ComponentNotReady", "mps is not ready: gpu-a: no daemon")
    ]
    assert list(notices(broken, ready)) == [Notice("Normal", "ComponentReady", "mps is ready")]


def test_what_stays_is_not_told_again() -> None:
    broken = status("notReady", mps=("notReady", "gpu-a: no daemon"))
    assert list(notices(broken, broken)) == []


def test_a_component_that_was_never_on_is_not_told() -> None:
    off, on = status(mps=("disabled", "")), status(mps=("ready", ""))
    assert list(notices({}, off)) == []
    assert [one.reason for one in notices(on, off)] == ["ComponentDisabled"]


def test_what_cannot_be_served_is_told_once() -> None:
    after = status(dashboard=("unserved", "there is none"))
    assert list(notices({}, after)) == [Notice("Warning", "Unserved", "dashboard cannot be served: there is none")]
    assert list(notices(after, after)) == []


def test_a_failure_is_told_when_it_changes() -> None:
    one, other = status("notReady", "not allowed: list nodes"), status("notReady", "not allowed: patch nodes")
    assert [notice.message for notice in notices({}, one)] == ["not allowed: list nodes"]
    assert list(notices(one, one)) == []
    assert [notice.message for notice in notices(one, other)] == ["not allowed: patch nodes"]


def test_an_ignored_policy_is_told_so() -> None:
    after = {"state": "ignored", "conditions": [{"message": "another is active"}]}
    assert list(notices({}, after)) == [Notice("Warning", "Ignored", "another is active")]
    assert list(notices(after, after)) == []
