"""Where an object is in its life: its phase, whether it is being deleted, and its conditions. Pure."""

from collections.abc import Iterable

from gpushare.devcluster.apiserver.status import Object

ENDED = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def has_ended(pod: Object) -> bool:
    return phase(pod) in ENDED


def is_terminating(obj: Object) -> bool:
    """Whether it is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def with_conditions(status: Object, wanted: Iterable[Object], now: str) -> list[Object]:
    """The conditions of a status after these were set. A condition that does not change keeps its times."""
    conditions = {condition.get("type", ""): condition for condition in status.get("conditions") or []}
    for condition in wanted:
        old = conditions.get(condition["type"])
        if old is None or any(old.get(field) != value for field, value in condition.items()):
            same = old is not None and old.get("status") == condition["status"]
            since = old.get("lastTransitionTime", now) if old is not None and same else now
            conditions[condition["type"]] = {**condition, "lastTransitionTime": since}
    return list(conditions.values())
