"""The pods in a file that is not submitted yet: `why -f`.

Pure; yaml is imported here only, because that is slow. Takes Pods and all objects with a pod template, in several
documents and Lists. Objects without a pod are named in a note; it is an error if there are no others.
"""

from math import inf
from typing import Any

import msgspec

from gpushare.obs.errors import UserError
from gpushare.view.why import pod_details

MOST_REPLICAS = 10_000  # each is placed by itself
MOST_VALUES = 1_000_000  # in one file; aliases of aliases make a small file very large
LONGEST_NUMBER = 100  # characters
TOO_MANY = "it has more than {most:,} values"
UNFOLD = "its aliases unfold to more than {most:,} values"
TOO_LONG = "a number with {length:,} characters"
TOO_DEEP = "it is nested too deeply"
KINDS = "Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController or List"
NAMES_ITS_NODE = (
    "{file}: nodeName of {kind} {name} is ignored here. A pod with nodeName starts without kube-scheduler and gpushare."
)
_UNSURE = "kubectl apply --dry-run=server -f FILE names every fault"

Object = dict[str, Any]


class Item(msgspec.Struct):
    """A pod that would be created `replicas` times, or once on every node."""

    kind: str
    name: str
    pod: pod_details.Pod
    spec: msgspec.Raw  # of the pod, all that was written
    generated: bool = False  # its name is only the start of a generated one
    replicas: int = 1
    every_node: bool = False
    priority_class: str = ""

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod"

    @property
    def shown_kind(self) -> str | None:
        """The kind of a template; None for a pod."""
        return None if self.is_pod else self.kind


class Manifest(msgspec.Struct):
    items: list[Item]
    notes: list[str]
    namespaces: dict[str, dict[str, str]]  # that the file itself makes, and their labels


def read(text: str, file: str, namespace: str, most: int = MOST_VALUES) -> Manifest:
    """All pods of a file. `namespace`: of those that name none. `most`: values that it may have."""
    items: list[Item] = []
    notes: list[str] = []
    skipped: list[str] = []
    namespaces: dict[str, dict[str, str]] = {}
    for position, document in enumerate(_documents(text, file, most), 1):
        if not isinstance(document, dict):
            what = f"{file}: document {position} is no Kubernetes object"
            raise UserError(what, f"it is {_described(document)}", f"it should begin with kind: {KINDS}")
        for obj in _flat(document):
            kind, name = _kind(obj, file), _name(obj)
            template, replicas = _template(kind, obj)
            if kind == "Namespace":
                namespaces[name] = _labels(obj)
            if template is None:
                skipped.append(f"{kind} {name}".strip())
                continue
            items.append(_item(kind, obj, template, replicas, file, namespace))
            if _mapping(template.get("spec")).get("nodeName") and not _mapping(obj.get("metadata")).get("uid"):
                notes.append(NAMES_ITS_NODE.format(file=file, kind=kind, name=name))
    if not items:
        held = f"it holds {', '.join(skipped)}" if skipped else "it is empty"
        raise UserError(f"no pod in {file}", held, f"a file with a {KINDS}")
    return Manifest(items, [*notes, *(f"{file}: {one} holds no pod." for one in skipped)], namespaces)


def _documents(text: str, file: str, most: int) -> list[Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Stops before it has made anything of a text that is too large, or of a number that is."""

        values = 0.0

        def compose_node(self, parent: Any, index: Any) -> Any:
            node: Any = super().compose_node(parent, index)
            self.values += 1
            if self.values > most:
                raise ValueError(TOO_MANY.format(most=most))
            if node.tag.endswith((":int", ":float")) and len(node.value) > LONGEST_NUMBER:
                raise ValueError(TOO_LONG.format(length=len(node.value)))
            return node

    try:
        loader, documents, size = Loader(text), [], 0.0
        while loader.check_node():
            node = loader.get_node()
            size += _size(node, {})
            if size > most:  # merge keys (<<) copy what they name: nothing may be made of it before this
                raise ValueError(UNFOLD.format(most=most))
            documents.append(loader.construct_document(node))
        return [document for document in documents if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error) or repr(error)
        problem = TOO_DEEP if isinstance(error, RecursionError) else problem
        raise UserError(f"{file} is no YAML", f"{where}{problem}", _UNSURE.replace("FILE", file)) from None


def _size(node: Any, known: dict[int, float]) -> float:
    """How many values a node of YAML is, those behind aliases each time; without end if something holds itself."""
    held = node.value if node is not None else ""
    if isinstance(held, str):
        return 1
    if id(node) not in known:
        known[id(node)] = inf  # as long as it is looked into
        parts = (part for one in held for part in (one if isinstance(one, tuple) else (one,)))
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _flat(document: Object) -> list[Object]:
    """A List is its items."""
    if not str(document.get("kind", "")).endswith("List") or not isinstance(document.get("items"), list):
        return [document]
    return [one for item in document["items"] if isinstance(item, dict) for one in _flat(item)]


def _kind(obj: Object, file: str) -> str:
    kind = obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise UserError(f"{file}: an object without a kind", f"it is {_described(obj)}", f"kind: {KINDS}")
    return kind


def _name(obj: Object) -> str:
    meta = _mapping(obj.get("metadata"))
    return str(meta.get("name") or meta.get("generateName") or "")


def _item(kind: str, obj: Object, template: Object, replicas: object, file: str, namespace: str) -> Item:
    name, meta, spec = _name(obj), _mapping(obj.get("metadata")), _mapping(template.get("spec"))
    if not name:
        way = f"metadata: {{name: my-{kind.lower()}}}"
        raise UserError(f"{file}: a {kind} without a name", "metadata.name is missing", way)
    who = f"{kind} {name}"
    of_pod = {**_mapping(template.get("metadata")), "name": name, "namespace": meta.get("namespace") or namespace}
    pod, written = _pod(of_pod, spec, file, who)
    return Item(
        kind,
        name,
        pod,
        written,
        generated=kind != "Pod" or not meta.get("name"),
        replicas=_count(replicas, f"{file}: {who}"),
        every_node=kind == "DaemonSet",
        priority_class=str(spec.get("priorityClassName") or ""),
    )


def _template(kind: str, obj: Object) -> tuple[Object | None, object]:
    """The pod that an object stands for, and how many there are of it."""
    if kind == "Pod":
        return obj, 1
    spec = _mapping(obj.get("spec"))
    if kind == "CronJob":
        spec = _mapping(_mapping(spec.get("jobTemplate")).get("spec"))
    template = obj.get("template") if kind == "PodTemplate" else spec.get("template")
    if not isinstance(template, dict) or "containers" not in _mapping(template.get("spec")):
        return None, 0
    if kind in ("Job", "CronJob"):
        return template, _parallel(spec)
    if kind == "StatefulSet":
        template = _with_claims(template, spec)
    return template, 1 if spec.get("replicas") is None else spec["replicas"]


def _with_claims(template: Object, stateful: Object) -> Object:
    """The pods of a StatefulSet have a volume for each claim that it makes for them."""
    claims = stateful.get("volumeClaimTemplates")
    names = [_name(claim) for claim in claims if isinstance(claim, dict)] if isinstance(claims, list) else []
    spec = _mapping(template.get("spec"))
    others = [one for one in spec.get("volumes") or () if _mapping(one).get("name") not in names]
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return {**template, "spec": {**spec, "volumes": [*others, *made]}} if made else template


def _parallel(job: Object) -> object:
    """How many pods of a Job run at the same time: never more than are left to complete."""
    at_once = 1 if job.get("parallelism") is None else job["parallelism"]
    completions = job.get("completions")
    return min(at_once, completions) if type(at_once) is int and type(completions) is int else at_once


def _count(replicas: object, who: str) -> int:
    if type(replicas) is not int or not 0 <= replicas <= MOST_REPLICAS:
        why = f"a whole number up to {MOST_REPLICAS:,} can be placed one by one"
        raise UserError(f"{who} asks for {replicas!r} replicas"[:200], why, "replicas: 3")
    return replicas


def _pod(meta: Object, spec: Object, file: str, who: str) -> tuple[pod_details.Pod, msgspec.Raw]:
    """The pod as it would be created, and all of its spec: what a cluster adds (uid, node, status) is not taken from a
    file."""
    kept = {key: meta.get(key) for key in ("name", "namespace", "annotations", "labels")}
    try:
        written = msgspec.json.encode(_without_nulls({key: spec[key] for key in spec if key != "nodeName"}))
        made = {"metadata": _without_nulls(kept), "spec": msgspec.Raw(written)}
        pod = msgspec.json.decode(msgspec.json.encode(made), type=pod_details.Pod)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        way = f'quote it if it is text, as in "2"; {_UNSURE.replace("FILE", file)}'
        raise UserError(f"{file}: {who} is not a valid pod", str(error), way) from None
    if not pod.spec.containers:
        raise UserError(f"{file}: {who} has no containers", "spec.containers is empty", _UNSURE.replace("FILE", file))
    return pod, msgspec.Raw(written)


def _without_nulls(value: Any) -> Any:
    """The API server reads null as not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _labels(obj: Object) -> dict[str, str]:
    labels = _mapping(_mapping(obj.get("metadata")).get("labels"))
    return {str(key): str(value) for key, value in labels.items()}


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _described(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"
