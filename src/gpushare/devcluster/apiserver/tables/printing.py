"""Objects as rows of a table: what `kubectl get` shows is made by the server, not by kubectl. Pure: the time comes in.

Columns and words are those of kube-apiserver 1.36. Columns marked wide appear with `-o wide` only. `pod_row` makes the
row of a pod.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gpushare.devcluster import times
from gpushare.devcluster.apiserver import selectors
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.tables import pod_row
from gpushare.devcluster.apiserver.tables.pod_row import NONE

UNKNOWN: Final = "<unknown>"
WIDE: Final = "*"  # before the name of a column
ROLE: Final = "node-role.kubernetes.io/"
Cells = Callable[[Object, float], list[Any]]


def table(
    kind: Kind, objects: Iterable[Object], now: float, *, metadata: Object, include: str = "", headers: bool = True
) -> Object:
    """A Table. `include`: how much of each object is in its row: None, Metadata (the default) or Object."""
    columns, cells = _TABLES[kind.resource]
    rows = [
        {"cells": _cells(cells, len(columns), obj, now)}
        | ({} if include == "None" else {"object": _carried(kind, obj, include)})
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_column(name) for name in columns] if headers else None,
        "rows": rows,
    }


def _cells(cells: Cells, count: int, obj: Object, now: float) -> list[Any]:
    try:
        return cells(obj, now)
    except (AttributeError, KeyError, TypeError, ValueError):  # a status is stored unchecked
        return [obj["metadata"].get("name"), *["<invalid>"] * (count - 1)]


def _column(name: str) -> Object:
    plain = name.removeprefix(WIDE)
    return {
        "name": plain,
        "type": "string",
        "format": "name" if plain == "Name" else "",
        "description": "",
        "priority": int(name.startswith(WIDE)),
    }


def _carried(kind: Kind, obj: Object, include: str) -> Object:
    if include == "Object":
        return {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _node(node: Object, now: float) -> list[Any]:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = pod_row.condition(status, "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = meta.get("labels") or {}
    roles = sorted(key.removeprefix(ROLE) for key in labels if key.startswith(ROLE) and key != ROLE)
    addresses = {address["type"]: address["address"] for address in reversed(status.get("addresses") or [])}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        *(meta.get("name"), ",".join(words), ",".join(roles) or NONE, _age(meta, now), info.get("kubeletVersion", "")),
        *(addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE)),
        *(info.get("osImage") or UNKNOWN, kernel, info.get("containerRuntimeVersion") or UNKNOWN),
    ]


def _namespace(namespace: Object, now: float) -> list[Any]:
    meta = namespace["metadata"]
    return [meta.get("name"), (namespace.get("status") or {}).get("phase", ""), _age(meta, now)]


def _config_map(config_map: Object, now: float) -> list[Any]:
    data = len(config_map.get("data") or {}) + len(config_map.get("binaryData") or {})
    return [config_map["metadata"].get("name"), data, _age(config_map["metadata"], now)]


def _secret(secret: Object, now: float) -> list[Any]:
    name, data, age = _config_map(secret, now)
    return [name, secret.get("type") or "Opaque", data, age]


def _event(event: Object, now: float) -> list[Any]:
    about, source, series = (event.get(field) or {} for field in ("involvedObject", "source", "series"))
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    kind = about.get("kind", "").lower()
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return [
        *(times.since(last, now), event.get("type", ""), event.get("reason", "")),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        *(about.get("fieldPath", ""), f"{component}, {instance}" if instance else component),
        *(event.get("message", "").strip(), times.since(first, now)),
        *(series.get("count") or event.get("count") or 1, event["metadata"].get("name")),
    ]


def _deployment(deployment: Object, now: float) -> list[Any]:
    meta, spec, status = deployment["metadata"], deployment.get("spec") or {}, deployment.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [meta.get("name"), ready, *counts, _age(meta, now), *_template(spec)]


def _job(job: Object, now: float) -> list[Any]:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    state = next((word for word in ("Complete", "Failed") if pod_row.condition(status, word) == "True"), "Running")
    if state == "Running" and meta.get("deletionTimestamp"):
        state = "Terminating"
    several = spec.get("parallelism", 0)
    of = spec.get("completions") or (f"1 of {several}" if several > 1 else 1)
    took = ""
    if begin := status.get("startTime"):
        end = status.get("completionTime")
        took = times.length((times.seconds(end) if end else now) - times.seconds(begin))
    return [meta.get("name"), state, f"{status.get('succeeded', 0)}/{of}", took, _age(meta, now), *_template(spec)]


def _gpu_node(gpu_node: Object, now: float) -> list[Any]:
    meta, status = gpu_node["metadata"], gpu_node.get("status") or {}
    row = status.get("summary") or {}
    sampled = times.since(status["sampledAt"], now) if status.get("sampledAt") else None
    return [meta.get("name"), *map(row.get, _SUMMARY), sampled, _age(meta, now)]


def _template(spec: Object) -> list[str]:
    """Containers, images and selector, for `-o wide`."""
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    names = ",".join(container.get("name", "") for container in containers)
    images = ",".join(container.get("image", "") for container in containers)
    return [names, images, selectors.written(spec.get("selector") or {})]


def _age(meta: Object, now: float) -> str:
    return times.since(meta.get("creationTimestamp"), now)


_OF_SYSTEM: Final = ("*Internal-IP", "*External-IP", "*OS-Image", "*Kernel-Version", "*Container-Runtime")
_SUMMARY: Final = ("gpus", "model", "granted", "used", "utilization", "temperature", "power", "health")
_OF_TEMPLATE: Final = ("*Containers", "*Images", "*Selector")
_TABLES: Final[Mapping[str, tuple[tuple[str, ...], Cells]]] = {
    "pods": (
        ("Name", "Ready", "Status", "Restarts", "Age", "*IP", "*Node", "*Nominated Node", "*Readiness Gates"),
        pod_row.pod,
    ),
    "nodes": (
        ("Name", "Status", "Roles", "Age", "Version", *_OF_SYSTEM),
        _node,
    ),
    "configmaps": (("Name", "Data", "Age"), _config_map),
    "secrets": (("Name", "Type", "Data", "Age"), _secret),
    "events": (
        ("Last Seen", "Type", "Reason", "Object", "*Subobject", "*Source", "Message", "*First Seen", "*Count", "*Name"),
        _event,
    ),
    "namespaces": (("Name", "Status", "Age"), _namespace),
    "deployments.apps": (("Name", "Ready", "Up-to-date", "Available", "Age", *_OF_TEMPLATE), _deployment),
    "gpunodes.gpushare.io": (  # those of deploy/crds/gpunodes.yaml
        ("Name", "GPUs", "Model", "Granted", "Used", "Util", "Temp", "Power", "Health", "Sampled", "Age"),
        _gpu_node,
    ),
    "jobs.batch": (("Name", "Status", "Completions", "Duration", "Age", *_OF_TEMPLATE), _job),
}
