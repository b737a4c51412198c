"""Events about a policy: when a component becomes ready or not, with the reason, when it cannot be served, and when a
policy is ignored. They compare the status that is written with the one before, so a restart repeats nothing."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gpushare.kube.events import Recorder
from gpushare.operator.applying.marking import API_VERSION, KIND
from gpushare.operator.seeing.models import Policy

Object = dict[str, Any]

NORMAL, WARNING = "Normal", "Warning"
LONGEST: Final = 1000  # characters; a reason of several nodes is longer than that of a pod


class Notice(NamedTuple):
    type: str
    reason: str
    message: str


def notices(before: Object, after: Object) -> Iterator[Notice]:
    if after["state"] == "ignored":
        if before.get("state") != "ignored":
            yield Notice(WARNING, "Ignored", after["conditions"][0]["message"])
        return
    old = {one["name"]: one for one in before.get("components") or ()}
    for one in after.get("components") or ():
        was = old.get(one["name"], {}).get("state")
        if one["state"] != was:
            yield from _changed(one, was)
    failure, failed_before = _failure(after), _failure(before)
    if failure and failure != failed_before:
        yield Notice(WARNING, "ReconcileFailed", failure)


def record(recorder: Recorder, policy: Policy, after: Object) -> None:
    for notice in notices(policy.status or {}, after):
        recorder.record(
            kind=KIND, api_version=API_VERSION, namespace="", name=policy.name, uid=policy.uid, longest=LONGEST,
            type=notice.type, reason=notice.reason, message=notice.message, again=True,
        )  # fmt: skip


def _changed(component: Object, was: str | None) -> Iterator[Notice]:
    name, message = component["name"], component.get("message", "")
    match component["state"]:
        case "ready":
            yield Notice(NORMAL, "ComponentReady", f"{name} is ready")
        case "notReady":
            yield Notice(WARNING, "ComponentNotReady", f"{name} is not ready: {message}")
        case "unserved":
            yield Notice(WARNING, "Unserved", f"{name} cannot be served: {message}")
        case "disabled" if was is not None:
            yield Notice(NORMAL, "ComponentDisabled", f"{name} is switched off and removed")


def _failure(status: Object) -> str:
    found = (one for one in status.get("conditions") or () if one["type"] == "Error")
    return next((one["message"] for one in found if one["reason"] == "ReconcileFailed"), "")
