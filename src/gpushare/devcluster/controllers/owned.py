"""Pods that belong to a Deployment or a Job: how one is made, and which one is deleted first. Pure."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.tables import pod_row


@dataclass(frozen=True)
class Steps:
    """What to do now: how many pods to create, and which to delete."""

    create: int = 0
    delete: list[Object] = field(default_factory=list)


def pod(kind: Kind, owner: Object, labels: Object) -> Object:
    """A new pod from the owner's template, with these labels besides the template's."""
    meta, template = owner["metadata"], copy.deepcopy(owner["spec"]["template"])  # creating it changes it
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    metadata = {field: value for field, value in template["metadata"].items() if field in ("labels", "annotations")}
    metadata["labels"] = (metadata.get("labels") or {}) | labels
    metadata["generateName"] = f"{meta['name']}-"
    metadata["ownerReferences"] = [reference | {"controller": True, "blockOwnerDeletion": True}]
    return {"metadata": metadata, "spec": template["spec"]}


def controller(pod: Object) -> Object | None:
    """The reference to the controller of the pod."""
    references = pod["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def active(pods: Iterable[Object]) -> list[Object]:
    """Those that run or will run."""
    return [pod for pod in pods if not lifecycle.has_ended(pod) and not lifecycle.is_terminating(pod)]


def ready(pod: Object) -> bool:
    return pod_row.condition(pod.get("status") or {}, "Ready") == "True"


def expendable(pods: Iterable[Object]) -> list[Object]:
    """The pods in the order in which they are deleted: those that do not run yet first, then the youngest."""
    youngest = sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    return sorted(
        youngest, key=lambda pod: (bool(pod["spec"].get("nodeName")), lifecycle.phase(pod) == "Running", ready(pod))
    )
