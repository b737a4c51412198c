"""The verbs of the API server: create, read, list, update, patch, bind, delete. What is allowed, and what it does.

No HTTP: `apiserver` calls this with decoded bodies, tests may call it directly. Each verb runs to its end without
awaiting, so a verb is as atomic as a transaction of etcd. The order of checks is the original's, because it decides
which of two errors a client sees.
"""

import datetime
import random
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from gpushare.devcluster import kinds, patches, pods, rules, status
from gpushare.devcluster.kinds import Kind
from gpushare.devcluster.status import Object
from gpushare.devcluster.store import Entry, Store

PODS: Final = kinds.BY_RESOURCE["pods"]
NAMESPACES: Final = kinds.BY_RESOURCE["namespaces"]
OTHER_NAMESPACE: Final = "the namespace of the provided object does not match the namespace sent on the request"
OTHER_NAME: Final = "the name of the object ({found}) does not match the name on the URL ({asked})"
OTHER_POD: Final = "name in URL does not match name in Binding object"
UID_GONE: Final = (
    "the UID in the precondition ({wanted}) does not match the UID in record ({found}). "
    "The object might have been deleted and then recreated"
)
VERSION_GONE: Final = (
    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). "
    "The object might have been modified"
)
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Registry:
    """`ignore_binding_uid`: as servers before 1.23. `nodes_copy_capacity`: do at once what kubelet does later."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        ignore_binding_uid: bool = False,
        nodes_copy_capacity: bool = False,
    ) -> None:
        self.store = store
        self.ignore_binding_uid = ignore_binding_uid
        self.nodes_copy_capacity = nodes_copy_capacity
        self._clock = clock
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str, name: str, old_will_do: bool = False) -> Entry:
        key = kinds.key(kind, namespace, name)
        entry = self.store.cached(kind.resource).find(key) if old_will_do else self.store.get(kind.resource, key)
        if entry is None:
            raise status.not_found(kind.resource, name)
        return entry

    def create(self, kind: Kind, namespace: str, obj: Object) -> bytes:
        _read(kind, obj)
        meta = obj["metadata"]
        _check_namespace(meta, namespace)
        if kind.namespaced:
            self.get(NAMESPACES, "", namespace)
            meta["namespace"] = namespace
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_LETTERS, k=5))
        if meta.get("resourceVersion"):
            raise status.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "generation"):
            meta.pop(field, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self._now()
        _refuse(kind, meta.get("name", ""), kind.create(obj))
        return self.store.create(kind.resource, kinds.key(kind, namespace, meta["name"]), obj).data

    def load(self, objects: Iterable[Object]) -> int:
        """Bulk load, before clients come: stored as given, statuses and bindings included, without any check."""
        return self.store.load(self._loaded(objects))

    def _loaded(self, objects: Iterable[Object]) -> Iterable[tuple[str, str, Object]]:
        for given in objects:
            kind = kinds.BY_KIND[given["kind"]]
            obj = {key: value for key, value in given.items() if key not in ("kind", "apiVersion")}
            meta = obj["metadata"] = {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()} | obj["metadata"]
            if kind.namespaced:
                meta.setdefault("namespace", "default")
                if self.store.get("namespaces", meta["namespace"]) is None:
                    self.create(NAMESPACES, "", {"metadata": {"name": meta["namespace"]}})
            yield kind.resource, kinds.key(kind, meta.get("namespace", ""), meta["name"]), obj

    def update(self, kind: Kind, namespace: str, name: str, obj: Object, subresource: str = "") -> bytes:
        """PUT: the object replaces the present one, of the same uid and resourceVersion if it names them."""
        _read(kind, obj)
        old = self.get(kind, namespace, name)
        wanted = obj["metadata"].get("uid")
        if wanted and wanted != old.uid:
            raise status.precondition(kind.resource, old.key, name, "UID", wanted, old.uid)
        return self._replace(kind, namespace, name, old, obj, subresource)

    def patch(
        self, kind: Kind, namespace: str, name: str, content_type: str, patch: Any, subresource: str = ""
    ) -> bytes:
        old = self.get(kind, namespace, name)
        obj = patches.apply(content_type, old.obj(), patch)
        _read(kind, obj)
        return self._replace(kind, namespace, name, old, obj, subresource)

    def _replace(self, kind: Kind, namespace: str, name: str, entry: Entry, new: Object, subresource: str) -> bytes:
        old = _object(kind, entry)
        meta, had = new["metadata"], old["metadata"]
        _check_namespace(meta, namespace)
        if meta.get("name", "") != name:
            raise status.bad_request(OTHER_NAME.format(found=meta.get("name", ""), asked=name))
        if meta.get("resourceVersion", str(entry.revision)) not in ("", str(entry.revision)):
            raise status.conflict(kind.resource, name, status.MODIFIED)
        causes = []
        if meta.get("uid", entry.uid) != entry.uid:
            causes.append(rules.invalid("metadata.uid", meta["uid"], "field is immutable"))
        for field in ("uid", "namespace", "creationTimestamp", "generation", "deletionTimestamp"):
            meta.pop(field, None)
            if field in had:
                meta[field] = had[field]
        if "deletionGracePeriodSeconds" in had:
            meta["deletionGracePeriodSeconds"] = had["deletionGracePeriodSeconds"]
        change = kind.status if subresource == "status" else kind.update
        assert change is not None, "the path table only offers /status where there is one"
        _refuse(kind, name, causes + change(new, old))
        if self.nodes_copy_capacity and kind.resource == "nodes":
            _copy_capacity(new)
        if had.get("deletionTimestamp") and not meta.get("finalizers") and not had.get("deletionGracePeriodSeconds"):
            self.store.delete(kind.resource, entry.key)  # the last finalizer is gone
            return msgspec.json.encode(new)
        return self.store.update(kind.resource, entry.key, new).data

    def bind(self, namespace: str, binding: Object, name: str = "") -> None:
        """Puts a pod on a node: node, annotations and condition in one update, or nothing at all."""
        _understand("Binding", rules.read_metadata, binding)
        meta, target = binding["metadata"], binding.get("target") or {}
        name = name or meta.get("name", "")
        if meta.get("name", "") != name:
            raise status.bad_request(OTHER_POD)
        if target.get("kind", "Node") not in ("", "Node"):
            sentence = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
            raise status.ApiError(500, "", sentence)
        if not target.get("name"):
            raise status.ApiError(500, "", "target.name: Required value")
        entry = self.get(PODS, namespace, name)
        if meta.get("uid", entry.uid) != entry.uid and not self.ignore_binding_uid:
            raise status.precondition("pods", entry.key, name, "UID", meta["uid"], entry.uid)
        wanted, found = meta.get("resourceVersion"), str(entry.revision)
        if wanted and wanted != found:
            raise status.precondition("pods", entry.key, name, "ResourceVersion", wanted, found)
        pod = _object(PODS, entry)
        if refusal := pods.bind(pod, binding, self._now()):
            raise status.conflict("pods/binding", name, refusal)
        self.store.update("pods", entry.key, pod)

    def delete(self, kind: Kind, namespace: str, name: str, options: Object) -> bytes:
        """Deletes at once, or marks for deletion what a kubelet or a finalizer still holds."""
        entry = self.get(kind, namespace, name)
        _check_preconditions(kind, name, entry, options.get("preconditions") or {})
        obj = _object(kind, entry)
        meta = obj["metadata"]
        asked = options.get("gracePeriodSeconds")
        if asked is not None and asked < 0:
            asked = 1
        left = meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp") and left:
            if asked is None or asked >= left:
                return entry.data  # under way already; a deletion can only be made shorter
            self._mark(obj, asked)
        elif kind.grace and not meta.get("deletionTimestamp"):
            self._mark(obj, kind.grace(obj, asked))
        elif meta.get("finalizers") and not meta.get("deletionTimestamp"):
            self._mark(obj, 0)
        marked = self.store.update(kind.resource, entry.key, obj)
        if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
            return marked.data
        if kind is NAMESPACES:
            self._empty(name)
        gone = self.store.delete(kind.resource, entry.key).gone()
        details = {"name": name, "kind": kind.resource, "uid": entry.uid}
        return gone if kind.returns_deleted else msgspec.json.encode(status.success(details=details))

    def _mark(self, obj: Object, seconds: int) -> None:
        """Sets when the object may go; a second deletion counts from the first, but never into the past."""
        meta = obj["metadata"]
        start = self._clock()
        if meta.get("deletionTimestamp"):
            due = datetime.datetime.fromisoformat(meta["deletionTimestamp"]).timestamp()
            start = max(start - seconds, due - meta["deletionGracePeriodSeconds"])
        elif meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = _timestamp(start + seconds)
        meta["deletionGracePeriodSeconds"] = seconds

    def _empty(self, namespace: str) -> None:
        """What the namespace controller of a cluster does after a while."""
        for kind in kinds.KINDS:
            if kind.namespaced:
                snapshot = self.store.snapshot(kind.resource)
                for i in snapshot.span(namespace):
                    self.store.delete(kind.resource, snapshot.entries[i].key)

    def _now(self) -> str:
        return _timestamp(self._clock())


def _timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(kind: Kind, obj: Object) -> None:
    """Decodes as a real server would: what it cannot make a typed object of is a bad request."""
    if obj.pop("kind", kind.kind) != kind.kind:
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    obj.pop("apiVersion", None)
    _understand(kind.kind, rules.read_metadata, obj)
    obj["metadata"].pop("managedFields", None)
    _understand(kind.kind, kind.read, obj)


def _understand(kind: str, reader: Callable[[Object], None], obj: Object) -> None:
    try:
        reader(obj)
    except (ValueError, TypeError, AttributeError) as error:
        raise status.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error


def _object(kind: Kind, entry: Entry) -> Object:
    """A stored object, ready to be changed; what was loaded in bulk gets its defaults here, as from an old etcd."""
    obj = entry.obj()
    kind.read(obj)
    return obj


def _refuse(kind: Kind, name: str, causes: list[rules.Cause]) -> None:
    if causes:
        raise status.invalid(kind.kind, name, causes)


def _check_namespace(meta: Object, namespace: str) -> None:
    if meta.get("namespace", namespace) != namespace:
        raise status.bad_request(OTHER_NAMESPACE)


def _check_preconditions(kind: Kind, name: str, entry: Entry, wanted: Object) -> None:
    found = {"uid": (entry.uid, UID_GONE), "resourceVersion": (str(entry.revision), VERSION_GONE)}
    for field, (value, sentence) in found.items():
        if wanted.get(field) not in (None, value):
            raise status.conflict(kind.kind, name, sentence.format(wanted=wanted[field], found=value))


def _copy_capacity(node: Object) -> None:
    capacity, allocatable = node["status"].get("capacity") or {}, dict(node["status"].get("allocatable") or {})
    for resource in [*capacity, *allocatable]:
        if rules.is_extended(resource):
            allocatable.pop(resource, None)
            if resource in capacity:
                allocatable[resource] = capacity[resource]
    node["status"]["allocatable"] = allocatable
