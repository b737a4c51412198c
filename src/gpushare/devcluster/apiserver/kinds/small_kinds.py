"""The rules for nodes, ConfigMaps, events, namespaces and GPUNodes: defaults, refusals, what does not change. Pure."""

from typing import Final

from gpushare.core.facts import vitals
from gpushare.devcluster.apiserver.kinds import decoding, rules
from gpushare.devcluster.apiserver.kinds.rules import Cause
from gpushare.devcluster.apiserver.status import Object

OTHER_NAMESPACE: Final = "does not match event.namespace"


def read_node(node: Object) -> None:
    """Quantities become canonical. Without allocatable a node gets its capacity."""
    decoding.check(node, decoding.Node)
    status = node.setdefault("status", {})
    node.setdefault("spec", {})
    for field in ("capacity", "allocatable"):
        rules.canonical_amounts(status.get(field))
    if status.get("allocatable") is None and status.get("capacity") is not None:
        status["allocatable"] = dict(status["capacity"])


def node(obj: Object) -> list[Cause]:
    causes, status = rules.metadata(obj, rules.subdomain_name), obj["status"]
    for field in ("capacity", "allocatable"):
        causes += rules.amounts(status.get(field) or {}, f"status.{field}")
    return causes


def node_update(new: Object, old: Object) -> list[Cause]:
    new["status"] = old["status"]  # status is written through its own endpoint only
    return node(new)


def node_status(new: Object, old: Object) -> list[Cause]:
    new["spec"] = old["spec"]
    return node(new)


def config_map(obj: Object) -> list[Cause]:
    return rules.metadata(obj, rules.subdomain_name)


def read_event(obj: Object) -> None:
    decoding.check(obj, decoding.Event)


def event(obj: Object) -> list[Cause]:
    """An event is in the namespace of its object; an event about a node is in `default`."""
    causes = rules.metadata(obj, rules.path_name)
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    namespace = obj["metadata"].get("namespace", "")
    if obj.get("eventTime"):
        wrong = not about and namespace not in ("default", "kube-system")
        for field in ("reportingComponent", "reportingInstance", "action", "reason"):
            if not obj.get(field):
                causes.append((field, rules.REQUIRED, "Required value"))
    else:
        wrong = about != namespace if about else namespace != "default"
    if wrong:
        causes.append(rules.invalid("involvedObject.namespace", about, OTHER_NAMESPACE))
    return causes


def namespace(obj: Object) -> list[Cause]:
    meta = obj["metadata"]
    if meta.get("name"):
        meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    return rules.metadata(obj, rules.label_name)


def namespace_update(new: Object, old: Object) -> list[Cause]:
    new["spec"], new["status"] = old["spec"], old["status"]
    return rules.metadata(new, rules.label_name)


def read_gpu_node(obj: Object) -> None:
    """Its schema in deploy/crds is that of these structs."""
    decoding.check(obj, vitals.FullGpuNode)


def gpu_node(obj: Object) -> list[Cause]:
    obj.pop("status", None)  # status is written through its own endpoint only
    return rules.metadata(obj, rules.subdomain_name)


def gpu_node_update(new: Object, old: Object) -> list[Cause]:
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]
    return rules.metadata(new, rules.subdomain_name)


def gpu_node_status(new: Object, old: Object) -> list[Cause]:
    new["metadata"] = old["metadata"]
    return []
