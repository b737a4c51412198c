"""The rules for pods: defaults, what may never change, and how long a deleted pod stays. Pure.

These rules decide whether a scheduler works on a real cluster: amounts are whole numbers with request = limit, a spec
does not change, status and spec have their own endpoints, and a binding is one update.
"""

from typing import Any, Final

from gpushare.devcluster.apiserver.kinds import decoding, quantity, rules
from gpushare.devcluster.apiserver.kinds.rules import Cause
from gpushare.devcluster.apiserver.status import Object

IMMUTABLE: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
BEING_DELETED: Final = "pod {name} is being deleted, cannot be assigned to a host"
ASSIGNED: Final = 'pod {name} is already assigned to node "{node}"'
GATED: Final = "pod {name} has non-empty .spec.schedulingGates"
NOT_COMPUTE: Final = "must be a standard resource for containers"
NO_LIMIT: Final = "Required value: Limit must be set for non overcommitable resources"

# Names without a domain that a container may ask for; hugepages-… besides.
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_ENDED: Final = ("Succeeded", "Failed")
_GATED_CONDITION: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def read(pod: Object) -> None:
    """What the server adds when it reads a pod: defaults, canonical amounts, requests where only limits are given."""
    decoding.check(pod, decoding.Pod)
    for field in ("spec", "status"):
        pod[field] = pod.get(field) or {}
    read_spec(pod["spec"])


def read_spec(spec: Object) -> None:
    """The same for the spec alone, which may also be that of a template."""
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
    }
    for field, value in defaults.items():
        if spec.get(field) in (None, ""):
            spec[field] = value
    for container in _containers(spec):
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
        needs = container.setdefault("resources", {})
        rules.canonical_amounts(needs.get("limits"))
        rules.canonical_amounts(needs.get("requests"))
        if needs.get("limits"):
            needs["requests"] = needs["limits"] | (needs.get("requests") or {})


def create(pod: Object) -> list[Cause]:
    """A new pod is Pending, whatever its author wrote. Priority is what the admission plugin sets."""
    pod["metadata"]["generation"] = 1
    pod["status"] = {"phase": "Pending"}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [_GATED_CONDITION | {"lastTransitionTime": pod["metadata"]["creationTimestamp"]}]
    pod["spec"].setdefault("priority", 0)
    pod["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")
    return rules.metadata(pod, rules.subdomain_name) + validate_spec(pod["spec"])


def update(new: Object, old: Object) -> list[Cause]:
    """Through the main endpoint: metadata may change, status is ignored, the spec must not change."""
    new["status"] = old["status"]
    causes = rules.metadata(new, rules.subdomain_name)
    if new["spec"] == old["spec"]:
        return causes
    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if _frozen(new["spec"], old["spec"]) != _frozen(old["spec"], old["spec"]):
        causes.append(("spec", rules.FORBIDDEN, IMMUTABLE + _difference(old["spec"], new["spec"])))
    return causes


def update_status(new: Object, old: Object) -> list[Cause]:
    """Through /status: spec and owners are ignored; labels and annotations are stored, as in kube-apiserver."""
    new["spec"] = old["spec"]
    for field in ("ownerReferences", "deletionTimestamp"):
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]
    return rules.metadata(new, rules.subdomain_name)


def grace(pod: Object, asked: int | None) -> int:
    """How many seconds a deleted pod stays: 0 if it is not on a node."""
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in _ENDED:
        return 0
    seconds: int = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return seconds if seconds >= 0 else 1


def bind(pod: Object, binding: Object, now: str) -> str | None:
    """Sets the node, the binding's annotations and labels, and the condition. Returns the refusal, if any."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    if pod["metadata"].get("deletionTimestamp"):
        return BEING_DELETED.format(name=name)
    if node:
        return ASSIGNED.format(name=name, node=node)
    if pod["spec"].get("schedulingGates"):
        return GATED.format(name=name)
    pod["spec"]["nodeName"] = binding["target"]["name"]
    pod["status"].pop("nominatedNodeName", None)
    for field in ("annotations", "labels"):
        if given := binding["metadata"].get(field):
            pod["metadata"][field] = (pod["metadata"].get(field) or {}) | given
    conditions = [old for old in pod["status"].get("conditions") or [] if old.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    pod["status"]["conditions"] = [*conditions, scheduled]
    return None


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def validate_spec(spec: Object, at_spec: str = "spec") -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append((f"{at_spec}.containers", rules.REQUIRED, "Required value"))
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or []):
            at = f"{at_spec}.{field}[{i}]"
            missing = [needed for needed in ("name", "image") if not container.get(needed)]
            missing += [f"env[{j}].name" for j, entry in enumerate(container.get("env") or []) if not entry.get("name")]
            causes += [(f"{at}.{needed}", rules.REQUIRED, "Required value") for needed in missing]
            causes += _validate_needs(container["resources"], f"{at}.resources")
            name = container.get("name") or ""
            if name in names:
                causes.append((f"{at}.name", rules.DUPLICATE, f'Duplicate value: "{name}"'))
            names |= {name} - {""}
    return causes


def _validate_needs(needs: Object, at: str) -> list[Cause]:
    limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
    causes = rules.amounts(limits, f"{at}.limits") + rules.amounts(requests, f"{at}.requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for resource in amounts:
            if "/" not in resource and resource not in _STANDARD and not resource.startswith("hugepages-"):
                causes.append(rules.invalid(f"{at}.{field}[{resource}]", resource, NOT_COMPUTE))
    for resource, amount in requests.items():
        limit = limits.get(resource)
        if limit is None:
            if rules.is_extended(resource):
                causes.append((f"{at}.limits", rules.REQUIRED, NO_LIMIT))
        elif rules.is_extended(resource) and quantity.value(amount) != quantity.value(limit):
            causes.append(rules.invalid(f"{at}.requests", amount, f"must be equal to {resource} limit of {limit}"))
        elif quantity.value(amount) > quantity.value(limit):
            sentence = f"must be less than or equal to {resource} limit of {limit}"
            causes.append(rules.invalid(f"{at}.requests", amount, sentence))
    return causes


def _frozen(spec: Object, old: Object) -> Object:
    """A spec without the fields that may change: images, added tolerations, removed gates."""
    frozen: Object = {key: value for key, value in spec.items() if key != "schedulingGates"}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            frozen[field] = [{**container, "image": ""} for container in spec[field]]
    had: list[Any] = old.get("tolerations") or []
    if all(toleration in (spec.get("tolerations") or []) for toleration in had):
        frozen["tolerations"] = had
    if any(gate not in (old.get("schedulingGates") or []) for gate in spec.get("schedulingGates") or []):
        frozen["schedulingGates"] = spec["schedulingGates"]
    return frozen


def _difference(old: Object, new: Object) -> str:
    changed = sorted(field for field in old.keys() | new.keys() if old.get(field) != new.get(field))
    return "".join(f"  {field}: {old.get(field)!r} -> {new.get(field)!r}\n" for field in changed)
