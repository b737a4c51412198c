"""Pods that belong to a Deployment or a Job: how one is made, and which is missed least.

Pure.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.tables import pod_row

ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Steps:
    """What is to be done now: how many pods are made, and which go."""

    create: int = 0
    delete: list[Object] = field(default_factory=list)


def pod(kind: Kind, owner: Object, labels: Object) -> Object:
    """A new pod from the owner's template, with these labels besides the template's."""
    meta, template = owner["metadata"], copy.deepcopy(owner["spec"]["template"])  # whoever creates it changes it
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    metadata = {field: value for field, value in template["metadata"].items() if field in ("labels", "annotations")}
    metadata["labels"] = (metadata.get("labels") or {}) | labels
    metadata["generateName"] = f"{meta['name']}-"
    metadata["ownerReferences"] = [reference | {"controller": True, "blockOwnerDeletion": True}]
    return {"metadata": metadata, "spec": template["spec"]}


def controller(pod: Object) -> Object | None:
    """The reference to whoever manages the pod."""
    references = pod["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def active(pods: Iterable[Object]) -> list[Object]:
    """Those that do something, or will."""
    return [pod for pod in pods if phase(pod) not in ENDED and not leaving(pod)]


def ready(pod: Object) -> bool:
    return pod_row.condition(pod.get("status") or {}, "Ready") == "True"


def expendable(pods: Iterable[Object]) -> list[Object]:
    """The pods in the order in which they are missed least: what does not run yet, then what is youngest."""
    youngest = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    return sorted(youngest, key=lambda pod: (bool(pod["spec"].get("nodeName")), phase(pod) == "Running", ready(pod)))


def with_conditions(status: Object, wanted: Iterable[Object], now: str) -> list[Object]:
    """The conditions of a status after these; one that says what it said before keeps its times."""
    had = {found.get("type", ""): found for found in status.get("conditions") or []}
    for condition in wanted:
        old = had.get(condition["type"])
        if old is None or any(old.get(field) != value for field, value in condition.items()):
            same = old is not None and old.get("status") == condition["status"]
            since = old.get("lastTransitionTime", now) if old is not None and same else now
            had[condition["type"]] = {**condition, "lastTransitionTime": since}
    return list(had.values())
