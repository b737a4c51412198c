"""Which requests the API server sends to the webhook, as the `webhooks` of its three configurations.

Pure. Only pods that ask for GPUs, and writes of annotations that are ours, may depend on the webhook: from Kubernetes
1.28 on conditions say so. Before that an API server cannot look into a pod, so namespaces say it by label. Everything
is written out, defaults too, so that what is there can be compared with what should be.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpushare.core.admission import guard, pinning, priority, scheduler_name, unasked
from gpushare.core.facts import names, vitals

Object = dict[str, Any]

CONDITIONS_SINCE: Final = (1, 28)  # API servers that evaluate matchConditions
SERVICE, PORT = "gpushare-webhook", 443
PIN, GUARD, VALIDATE = "gpushare-pin", "gpushare-guard", "gpushare-validate"  # configurations
MUTATE_PATH, NVIDIA_PATH, UNASKED_PATH = "/mutate", "/mutate-nvidia", "/unasked"
GUARD_PATH, VALIDATE_PATH, PRIORITY_PATH = "/guard", "/validate", "/priority"
SCHEDULER_PATH: Final = "/scheduler-name/{name}"  # whoever reads the configuration sees which scheduler pods get
TIMEOUT: Final = 5  # seconds
SHORT_TIMEOUT: Final = 2  # for what may be let through unseen
NARROWING: Final = ("namespaceSelector", "objectSelector", "matchConditions")  # each line more sends fewer requests
OWN_NAME: Final = "kubernetes.io/metadata.name"  # every namespace has this label, from 1.21 on

_PODS: Final = (("", "v1", ["CREATE"], ["pods"]),)
_TEMPLATES: Final = (
    ("apps", "v1", ["CREATE", "UPDATE"], ["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", "v1", ["CREATE", "UPDATE"], ["cronjobs", "jobs"]),
)
_EVERY: Final = "({spec}.containers + (has({spec}.initContainers) ? {spec}.initContainers : []))"
_LIMITS: Final = "has(one.resources) && has(one.resources.limits)"
_LIMITED: Final = _LIMITS + " && {resources}.exists(name, name in one.resources.limits)"
_PINNED: Final = (
    "has(one.env) && one.env.exists(entry, has(entry.valueFrom) && has(entry.valueFrom.fieldRef)"
    f""" && entry.valueFrom.fieldRef.fieldPath.startsWith("metadata.annotations['{names.VISIBLE_PREFIX}"))"""
)
_TEMPLATE: Final = "(has(object.spec.jobTemplate) ? object.spec.jobTemplate : object).spec.template.spec"
_BEFORE: Final = "(oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {})"
_USER: Final = "request.userInfo.username"
_AFTER: Final = "(has(object.metadata.annotations) ? object.metadata.annotations : {})"

Rule = tuple[str, str, list[str], list[str]]


class Choices(NamedTuple):
    """What an admin chose on the command line, and the namespace in which the webhook runs."""

    labelled: bool = False  # pin only in namespaces with the label
    nvidia: bool = False  # pin nvidia.com/gpu, too
    void: bool = False  # hide GPUs from containers that ask for none
    scheduler: str = ""  # pods that ask for shares, and name no scheduler, get this one
    namespace: str = guard.NAMESPACE


def host(namespace: str) -> str:
    """What API servers expect in the certificate."""
    return f"{SERVICE}.{namespace}.svc"


def mutating(version: tuple[int, int], choices: Choices) -> list[Object]:
    """Of gpushare-pin. In this order: who is pinned is not hidden from its GPUs, and is known to ask for shares; and
    KETI's priority is for pods of one scheduler."""
    new = version >= CONDITIONS_SINCE
    labelled = pinning.NAMESPACES if choices.labelled or not new else {}
    found = [_pin("pin", MUTATE_PATH, names.PINNED, _selector(labelled), new)]
    if choices.nvidia:
        key, left = pinning.NVIDIA_LEFT
        found.append(_pin("nvidia.pin", NVIDIA_PATH, [names.NVIDIA_GPU], _selector(labelled, (key, [left])), new))
    if choices.void:
        rules: Sequence[Rule] = (*_PODS, ("", "v1", ["UPDATE"], ["pods/ephemeralcontainers"]))
        selectors = _unasked(choices.namespace, new)
        found += [_webhook(name, UNASKED_PATH, rules, namespaces=selector) for name, selector in selectors.items()]
    if choices.scheduler:
        found.append(_scheduler(choices, _selector(labelled), new))
    found.append(_priority(_selector(labelled), new))
    found = [one | {"reinvocationPolicy": "IfNeeded"} for one in found]  # others may add containers after us
    return _served(found, choices.namespace)


def guarding(version: tuple[int, int], namespace: str = guard.NAMESPACE) -> list[Object]:
    """Of gpushare-guard. Conditions send only what will be refused, so nothing else depends on the webhook."""
    written: Sequence[Rule] = (
        ("", "v1", ["CREATE", "UPDATE"], ["pods", "pods/status"]),
        ("", "v1", ["CREATE"], ["pods/binding", "bindings"]),
    )
    if version < CONDITIONS_SINCE:
        # Without conditions kubelets' reports come here too. They must not wait for a webhook that is away.
        selector = _selector(pinning.NAMESPACES)
        return _served(
            [_webhook("guard", GUARD_PATH, written, selector, fails=False, seconds=SHORT_TIMEOUT)], namespace
        )
    by = guard.writers(namespace)
    others = f"!({_USER} in {_list(by.all)})"
    pods = {"not-by-gpushare": others, "annotations-of-gpushare-change": _annotations_change()}
    nodes = {"not-by-gpushare": others, "annotations-of-gpushare-change": _node_annotations_change(by)}
    of_nodes: Sequence[Rule] = (("", "v1", ["UPDATE"], ["nodes", "nodes/status"]),)
    of_gpu_nodes: Sequence[Rule] = (
        (vitals.GROUP, vitals.VERSION, ["CREATE"], [vitals.PLURAL]),
        (vitals.GROUP, vitals.VERSION, ["UPDATE"], [f"{vitals.PLURAL}/status"]),
    )
    found = [
        _webhook("guard", GUARD_PATH, written, conditions=pods),
        _webhook("nodes.guard", GUARD_PATH, of_nodes, conditions=nodes),
        _webhook("gpunodes.guard", GUARD_PATH, of_gpu_nodes, conditions={"not-by-gpushare": others}),
    ]
    return _served(found, namespace)


def validating(version: tuple[int, int], namespace: str = guard.NAMESPACE) -> list[Object]:
    """Of gpushare-validate. Nothing here keeps a promise to others: what it lets through, the extender refuses."""
    new = version >= CONDITIONS_SINCE
    selector = _selector({} if new else pinning.NAMESPACES)
    found = []
    for name, rules, spec in (("validate", _PODS, "object.spec"), ("templates.validate", _TEMPLATES, _TEMPLATE)):
        conditions = _asks(spec, (*names.PINNED, names.NVIDIA_GPU)) if new else {}
        found.append(_webhook(name, VALIDATE_PATH, rules, selector, conditions, fails=False, seconds=SHORT_TIMEOUT))
    return _served(found, namespace)


def with_bundles(webhooks: Iterable[Object], bundle: str | None, there: Iterable[Object]) -> list[Object]:
    """Each with the authorities that its API servers trust, in base64. `bundle` is None: somebody else writes them, and
    those that are `there` stay."""
    known = {one.get("name"): (one.get("clientConfig") or {}).get("caBundle") for one in there}
    found = []
    for one in webhooks:
        trusted = known.get(one["name"]) if bundle is None else bundle
        config = one["clientConfig"] | ({"caBundle": trusted} if trusted else {})
        found.append(one | {"clientConfig": config})
    return found


def covers(there: object, wanted: object) -> bool:
    """Whether everything that is wanted is there, and nothing that narrows it; API servers add fields of their own."""
    if isinstance(wanted, dict):
        if not isinstance(there, dict) or any(there.get(key) != wanted.get(key) for key in NARROWING):
            return False
        return all(covers(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(there, list) and len(there) == len(wanted) and all(map(covers, there, wanted))
    return there == wanted


def _pin(name: str, path: str, resources: Sequence[str], namespaces: Object, new: bool) -> Object:
    return _webhook(name, path, _PODS, namespaces, _asks("object.spec", resources) if new else {})


def _unasked(namespace: str, new: bool) -> dict[str, Object]:
    """Which namespaces are meant. Never its own: every new pod there would wait for a webhook that has to start."""
    own = (OWN_NAME, [namespace])
    selectors = {"labelled.unasked": _selector({unasked.LABEL: unasked.VOIDED}, own)}
    if new:  # before, the names of system namespaces may not be known, and the cluster could not start itself
        chosen = (unasked.LABEL, [unasked.VOIDED, unasked.LEFT_ALONE])
        selectors["unasked"] = _selector({}, chosen, (OWN_NAME, unasked.system(namespace)))
    return selectors


def _scheduler(choices: Choices, namespaces: Object, new: bool) -> Object:
    """Whoever is pinned may be bound by the scheduler that knows GPUs alone, so this fails as the pin does."""
    undecided = (
        f"(!has(object.spec.schedulerName) || object.spec.schedulerName in {_list(scheduler_name.OPEN)})"
        " && (!has(object.spec.nodeName) || object.spec.nodeName == '')"
    )
    limited = _LIMITED.format(resources=_list([names.NVIDIA_GPU]))
    # Where we pin it, it comes here in any case: the pin may not be there yet when an API server looks.
    nvidia = f"({limited})" if choices.nvidia else f"({limited} && {_PINNED})"
    conditions = _asks("object.spec", names.PINNED, nvidia) | {"leaves-its-scheduler-open": undecided} if new else {}
    path = SCHEDULER_PATH.format(name=choices.scheduler)
    return _webhook("scheduler-name", path, _PODS, namespaces, conditions)


def _priority(namespaces: Object, new: bool) -> Object:
    """An order is no reason to refuse a pod, or to let it wait long."""
    said = f"has(object.metadata.annotations) && '{names.PRIORITY}' in object.metadata.annotations"
    of_ours = f"has(object.spec.schedulerName) && object.spec.schedulerName == '{priority.SCHEDULER}'"
    conditions = {"says-a-priority": f"{said} && {of_ours}"} if new else {}
    return _webhook("priority", PRIORITY_PATH, _PODS, namespaces, conditions, fails=False, seconds=SHORT_TIMEOUT)


def _webhook(
    name: str,
    path: str,
    rules: Iterable[Rule],
    namespaces: Object | None = None,
    conditions: Mapping[str, str] | None = None,
    *,
    fails: bool = True,
    seconds: int = TIMEOUT,
) -> Object:
    made: Object = {
        "name": f"{name}.gpushare.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": SERVICE, "path": path, "port": PORT}},
        "failurePolicy": "Fail" if fails else "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": namespaces or {},
        "objectSelector": {},
        "rules": [
            {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources,
             "scope": "*"}
            for group, version, operations, resources in rules
        ],
        "sideEffects": "None",
        "timeoutSeconds": seconds,
    }  # fmt: skip
    if conditions:
        made["matchConditions"] = [{"name": key, "expression": text} for key, text in conditions.items()]
    return made


def _served(webhooks: Iterable[Object], namespace: str) -> list[Object]:
    """Each with the namespace of the Service behind which it is."""
    found = []
    for one in webhooks:
        service = one["clientConfig"]["service"] | {"namespace": namespace}
        found.append(one | {"clientConfig": {"service": service}})
    return found


def _selector(labels: Mapping[str, str], *without: tuple[str, list[str]]) -> Object:
    selector: Object = {"matchLabels": dict(labels)} if labels else {}
    if without:
        selector["matchExpressions"] = [{"key": key, "operator": "NotIn", "values": them} for key, them in without]
    return selector


def _asks(spec: str, resources: Sequence[str], *others: str) -> dict[str, str]:
    """`others`: what else makes it a container that asks."""
    limited = " || ".join((_LIMITED.format(resources=_list(resources)), *others))
    return {"asks-for-gpus": f"{spec}.containers != null && {_EVERY.format(spec=spec)}.exists(one, {limited})"}


def _annotations_change() -> str:
    many = f"size({_BEFORE}) > {guard.MOST} || size({_AFTER}) > {guard.MOST}"
    ours = "(" + " || ".join(f"key.startsWith('{prefix}')" for prefix in guard.OF_CONTAINERS) + ")"
    return (
        f"{_BEFORE} != {_AFTER} && ({many} || {_list(guard.OF_PODS)}.exists(key, {_changes('key')})"
        f" || {_AFTER}.exists(key, {ours} && {_changes('key')})"
        f" || {_BEFORE}.exists(key, {ours} && !(key in {_AFTER})))"
    )


def _node_annotations_change(by: guard.Writers) -> str:
    changes = {key: _changes(f"'{key}'") for key in (names.NODE_GPUS, *by.also)}
    also = (f"({_USER} != '{account}' && {changes[key]})" for key, account in by.also.items())
    return " || ".join((changes[names.NODE_GPUS], *also))


def _changes(key: str) -> str:
    """Set, removed or another value."""
    here, there = f"{key} in {_BEFORE}", f"{key} in {_AFTER}"
    return f"(({here}) != ({there}) || (({here}) && ({there}) && {_BEFORE}[{key}] != {_AFTER}[{key}]))"


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"
