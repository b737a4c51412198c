"""The verbs of the API server: create, get, update, patch, scale, bind, delete. What is allowed, and what it does.

No HTTP: bodies are decoded. A verb never awaits, so it is atomic, as a transaction of etcd is. The order of checks is
kube-apiserver's, because it decides which of two errors a client sees.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from gpushare.devcluster import times
from gpushare.devcluster.apiserver import checks, patches, status
from gpushare.devcluster.apiserver.kinds import pods, rules, table, workloads
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry, Store

PODS: Final = table.BY_RESOURCE["pods"]
NAMESPACES: Final = table.BY_RESOURCE["namespaces"]
OTHER_NAME: Final = "the name of the object ({found}) does not match the name on the URL ({asked})"
OTHER_POD: Final = "name in URL does not match name in Binding object"
# Finalizers that a deletion adds for the garbage collector; deletion in the background adds none.
FINALIZERS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
GENERATE_TRIES: Final = 8
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Registry:
    """`ignore_binding_uid`: as servers before 1.23. `nodes_copy_capacity`: copies capacity to allocatable at once, as
    kubelet does later. `admit` may change a new pod, as admission policies do. `dice` makes generated names.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        ignore_binding_uid: bool = False,
        nodes_copy_capacity: bool = False,
        admit: Callable[[Object], None] | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self.store = store
        self.ignore_binding_uid = ignore_binding_uid
        self.nodes_copy_capacity = nodes_copy_capacity
        self.listed: dict[str, dict[str, str]] = {}  # by node: healthy devices of its device plugins
        self._clock = clock
        self._admit = admit
        self._dice = dice or random.Random()
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str, name: str, from_cache: bool = False) -> Entry:
        key = table.key(kind, namespace, name)
        entry = self.store.cached(kind.resource).find(key) if from_cache else self.store.get(kind.resource, key)
        if entry is None:
            raise status.not_found(kind.resource, name)
        return entry

    def create(self, kind: Kind, namespace: str, obj: Object, *, trial: bool = False) -> bytes:
        """`trial`: nothing is written (`dryRun=All`). The answer then has no resourceVersion."""
        checks.read(kind, obj)
        meta = obj["metadata"]
        checks.namespace(meta, namespace)
        if kind.namespaced:
            self.get(NAMESPACES, "", namespace)
            meta["namespace"] = namespace
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated(kind, namespace, meta["generateName"])
        if meta.get("resourceVersion"):
            raise status.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "generation"):
            meta.pop(field, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self.now()
        if self._admit is not None and kind is PODS:
            self._admit(obj)
        checks.refuse(kind, meta.get("name", ""), kind.create(obj))
        key = table.key(kind, namespace, meta["name"])
        if trial:
            self.store.check_new(kind.resource, key, obj)
            return msgspec.json.encode(obj)
        return self.store.create(kind.resource, key, obj).data

    def _generated(self, kind: Kind, namespace: str, start: str) -> str:
        """A name that is free. After some failed tries one that is taken, which is then refused."""
        name = ""
        for _ in range(GENERATE_TRIES):
            name = start[:58] + "".join(self._dice.choices(_LETTERS, k=5))
            if self.store.get(kind.resource, table.key(kind, namespace, name)) is None:
                break
        return name

    def load(self, objects: Iterable[Object]) -> int:
        """Stores many objects as they are, with status and binding, without checks, before clients connect."""
        return self.store.load(self._loaded(objects))

    def _loaded(self, objects: Iterable[Object]) -> Iterable[tuple[str, str, Object]]:
        for given in objects:
            kind = table.BY_KIND[given["kind"]]
            obj = {key: value for key, value in given.items() if key not in ("kind", "apiVersion")}
            meta = obj["metadata"] = {"uid": str(uuid.uuid4()), "creationTimestamp": self.now()} | obj["metadata"]
            if kind.namespaced:
                meta.setdefault("namespace", "default")
                if self.store.get("namespaces", meta["namespace"]) is None:
                    self.create(NAMESPACES, "", {"metadata": {"name": meta["namespace"]}})
            yield kind.resource, table.key(kind, meta.get("namespace", ""), meta["name"]), obj

    def update(self, kind: Kind, namespace: str, name: str, obj: Object, subresource: str = "") -> bytes:
        """PUT: the object replaces the current one. Its uid and resourceVersion must match if it has them."""
        checks.read(kind, obj)
        old = self.get(kind, namespace, name)
        wanted = obj["metadata"].get("uid")
        if wanted and wanted != old.uid:
            raise status.precondition(kind.resource, old.key, name, "UID", wanted, old.uid)
        return self._replace(kind, namespace, name, old, obj, subresource)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        content_type: str,
        patch: Any,
        subresource: str = "",
        *,
        by_apply: bool = False,
    ) -> bytes:
        """`by_apply`: kubectl apply made the patch. It may repeat what is there in other words, but change nothing."""
        old = self.get(kind, namespace, name)
        obj = patches.apply(content_type, old.obj(), patch)
        checks.read(kind, obj)
        if by_apply and not patches.same_but_for_last_applied(obj, checks.stored(kind, old)):
            raise status.apply_not_supported(name)
        return self._replace(kind, namespace, name, old, obj, subresource)

    def scale(self, kind: Kind, namespace: str, name: str) -> Object:
        return workloads.scale(checks.stored(kind, self.get(kind, namespace, name)))

    def rescale(self, kind: Kind, namespace: str, name: str, wanted: Object) -> Object:
        """PUT on /scale, or the result of a PATCH on it."""
        old = self.get(kind, namespace, name)
        obj = checks.stored(kind, old)
        checks.understand("Scale", lambda scale: workloads.rescale(obj, scale), wanted)
        self._replace(kind, namespace, name, old, obj, "")
        return self.scale(kind, namespace, name)

    def _replace(self, kind: Kind, namespace: str, name: str, entry: Entry, new: Object, subresource: str) -> bytes:
        old = checks.stored(kind, entry)
        meta, old_meta = new["metadata"], old["metadata"]
        checks.namespace(meta, namespace)
        if meta.get("name", "") != name:
            raise status.bad_request(OTHER_NAME.format(found=meta.get("name", ""), asked=name))
        if meta.get("resourceVersion", str(entry.revision)) not in ("", str(entry.revision)):
            raise status.conflict(kind.resource, name, status.MODIFIED)
        causes: list[rules.Cause] = []
        if meta.get("uid", entry.uid) != entry.uid:
            causes.append(rules.invalid("metadata.uid", meta["uid"], "field is immutable"))
        for field in ("uid", "namespace", "creationTimestamp", "generation", "deletionTimestamp"):
            meta.pop(field, None)
            if field in old_meta:
                meta[field] = old_meta[field]
        if "deletionGracePeriodSeconds" in old_meta:
            meta["deletionGracePeriodSeconds"] = old_meta["deletionGracePeriodSeconds"]
        change = kind.status if subresource == "status" else kind.update
        assert change is not None, "the path table only offers /status where there is one"
        checks.refuse(kind, name, causes + change(new, old))
        if self.nodes_copy_capacity and kind.resource == "nodes":
            checks.copy_capacity(new, self.listed.get(name, {}))
        terminating = old_meta.get("deletionTimestamp") and not old_meta.get("deletionGracePeriodSeconds")
        if terminating and not meta.get("finalizers"):
            self.store.delete(kind.resource, entry.key)  # the last finalizer is gone
            return msgspec.json.encode(new)
        return self.store.update(kind.resource, entry.key, new).data

    def bind(self, namespace: str, binding: Object, name: str = "") -> None:
        """Binds a pod: node, annotations and condition are one update."""
        checks.understand("Binding", rules.read_metadata, binding)
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
        wanted, actual = meta.get("resourceVersion"), str(entry.revision)
        if wanted and wanted != actual:
            raise status.precondition("pods", entry.key, name, "ResourceVersion", wanted, actual)
        pod = checks.stored(PODS, entry)
        if refusal := pods.bind(pod, binding, self.now()):
            raise status.conflict("pods/binding", name, refusal)
        self.store.update("pods", entry.key, pod)

    def delete(self, kind: Kind, namespace: str, name: str, options: Object) -> bytes:
        """Deletes at once, or marks for deletion if a kubelet or a finalizer has work to do first."""
        entry = self.get(kind, namespace, name)
        checks.preconditions(kind, name, entry, options.get("preconditions") or {})
        obj = checks.stored(kind, entry)
        meta = obj["metadata"]
        asked = options.get("gracePeriodSeconds")
        if asked is not None and asked < 0:
            asked = 1
        if kind.owns_pods and (finalizer := FINALIZERS.get(options.get("propagationPolicy") or "")):
            others = [held for held in meta.get("finalizers") or [] if held != finalizer]
            meta["finalizers"] = [*others, finalizer]
        left = meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp") and left:
            if asked is None or asked >= left:
                return entry.data  # it is being deleted already; the time can only be made shorter
            self._mark(obj, asked)
        elif kind.grace and not meta.get("deletionTimestamp"):
            self._mark(obj, kind.grace(obj, asked))
        elif meta.get("finalizers") and not meta.get("deletionTimestamp"):
            self._mark(obj, 0)
        marked = self.store.update(kind.resource, entry.key, obj)
        if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
            return marked.data
        if kind is NAMESPACES:
            self._delete_all_in(name)
        gone = self.store.delete(kind.resource, entry.key).gone()
        details = status.about(kind.resource, name) | {"uid": entry.uid}
        return gone if kind.returns_deleted else msgspec.json.encode(status.success(details=details))

    def _mark(self, obj: Object, seconds: int) -> None:
        """Sets the time of deletion. A second deletion counts from the first, but is never in the past."""
        meta = obj["metadata"]
        start = self._clock()
        if meta.get("deletionTimestamp"):
            due = times.seconds(meta["deletionTimestamp"])
            start = max(start - seconds, due - meta["deletionGracePeriodSeconds"])
        elif meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = times.timestamp(start + seconds)
        meta["deletionGracePeriodSeconds"] = seconds

    def _delete_all_in(self, namespace: str) -> None:
        """A real cluster does this a little later, in its namespace controller."""
        for kind in table.KINDS:
            if kind.namespaced:
                snapshot = self.store.snapshot(kind.resource)
                for i in snapshot.span(namespace):
                    self.store.delete(kind.resource, snapshot.entries[i].key)

    def now(self) -> str:
        """The server's time, as objects carry it."""
        return times.timestamp(self._clock())
