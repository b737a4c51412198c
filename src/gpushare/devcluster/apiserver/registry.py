"""The verbs of the API server: create, read, list, update, patch, bind, delete. What is allowed, and what it does.

No HTTP: `apiserver` calls this with decoded bodies, tests may call it directly. Each verb runs to its end without
awaiting, so a verb is as atomic as a transaction of etcd. The order of checks is the original's, because it decides
which of two errors a client sees.
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
# What a deletion leaves to the garbage collector before the object may go. In the background nothing is.
FINALIZERS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
GENERATE_TRIES: Final = 8
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Registry:
    """`ignore_binding_uid`: as servers before 1.23. `nodes_copy_capacity`: do at once what kubelet does later.

    `admit` may change a pod before it is created, as admission policies do; `dice` makes the generated names.
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
        self.listed: dict[str, dict[str, str]] = {}  # by node: what can be had of the resources of its device plugins
        self._clock = clock
        self._admit = admit
        self._dice = dice or random.Random()
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str, name: str, old_will_do: bool = False) -> Entry:
        key = table.key(kind, namespace, name)
        entry = self.store.cached(kind.resource).find(key) if old_will_do else self.store.get(kind.resource, key)
        if entry is None:
            raise status.not_found(kind.resource, name)
        return entry

    def create(self, kind: Kind, namespace: str, obj: Object, *, trial: bool = False) -> bytes:
        """`trial`: all is done but the writing (`dryRun=All`). The answer then has no resourceVersion."""
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
        """A name nobody has; after some tries in vain the one that is taken, which is then refused."""
        name = ""
        for _ in range(GENERATE_TRIES):
            name = start[:58] + "".join(self._dice.choices(_LETTERS, k=5))
            if self.store.get(kind.resource, table.key(kind, namespace, name)) is None:
                break
        return name

    def load(self, objects: Iterable[Object]) -> int:
        """Bulk load, before clients come: stored as given, statuses and bindings included, without any check."""
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
        """PUT: the object replaces the present one, of the same uid and resourceVersion if it names them."""
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
        """`by_apply`: kubectl apply made the patch. It may say in other words what is there, but change nothing."""
        old = self.get(kind, namespace, name)
        obj = patches.apply(content_type, old.obj(), patch)
        checks.read(kind, obj)
        if by_apply and not patches.same_but_for_what_was_applied(obj, checks.stored(kind, old)):
            raise status.apply_not_supported(name)
        return self._replace(kind, namespace, name, old, obj, subresource)

    def scale(self, kind: Kind, namespace: str, name: str) -> Object:
        return workloads.scale(checks.stored(kind, self.get(kind, namespace, name)))

    def rescale(self, kind: Kind, namespace: str, name: str, wanted: Object) -> Object:
        """PUT on /scale, or what a PATCH made of it."""
        old = self.get(kind, namespace, name)
        obj = checks.stored(kind, old)
        checks.understand("Scale", lambda scale: workloads.rescale(obj, scale), wanted)
        self._replace(kind, namespace, name, old, obj, "")
        return self.scale(kind, namespace, name)

    def _replace(self, kind: Kind, namespace: str, name: str, entry: Entry, new: Object, subresource: str) -> bytes:
        old = checks.stored(kind, entry)
        meta, had = new["metadata"], old["metadata"]
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
            if field in had:
                meta[field] = had[field]
        if "deletionGracePeriodSeconds" in had:
            meta["deletionGracePeriodSeconds"] = had["deletionGracePeriodSeconds"]
        change = kind.status if subresource == "status" else kind.update
        assert change is not None, "the path table only offers /status where there is one"
        checks.refuse(kind, name, causes + change(new, old))
        if self.nodes_copy_capacity and kind.resource == "nodes":
            checks.copy_capacity(new, self.listed.get(name, {}))
        if had.get("deletionTimestamp") and not meta.get("finalizers") and not had.get("deletionGracePeriodSeconds"):
            self.store.delete(kind.resource, entry.key)  # the last finalizer is gone
            return msgspec.json.encode(new)
        return self.store.update(kind.resource, entry.key, new).data

    def bind(self, namespace: str, binding: Object, name: str = "") -> None:
        """Puts a pod on a node: node, annotations and condition in one update, or nothing at all."""
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
        wanted, found = meta.get("resourceVersion"), str(entry.revision)
        if wanted and wanted != found:
            raise status.precondition("pods", entry.key, name, "ResourceVersion", wanted, found)
        pod = checks.stored(PODS, entry)
        if refusal := pods.bind(pod, binding, self.now()):
            raise status.conflict("pods/binding", name, refusal)
        self.store.update("pods", entry.key, pod)

    def delete(self, kind: Kind, namespace: str, name: str, options: Object) -> bytes:
        """Deletes at once, or marks for deletion what a kubelet or a finalizer still holds."""
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
        details = status.about(kind.resource, name) | {"uid": entry.uid}
        return gone if kind.returns_deleted else msgspec.json.encode(status.success(details=details))

    def _mark(self, obj: Object, seconds: int) -> None:
        """Sets when the object may go; a second deletion counts from the first, but never into the past."""
        meta = obj["metadata"]
        start = self._clock()
        if meta.get("deletionTimestamp"):
            due = times.seconds(meta["deletionTimestamp"])
            start = max(start - seconds, due - meta["deletionGracePeriodSeconds"])
        elif meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = times.timestamp(start + seconds)
        meta["deletionGracePeriodSeconds"] = seconds

    def _empty(self, namespace: str) -> None:
        """What the namespace controller of a cluster does after a while."""
        for kind in table.KINDS:
            if kind.namespaced:
                snapshot = self.store.snapshot(kind.resource)
                for i in snapshot.span(namespace):
                    self.store.delete(kind.resource, snapshot.entries[i].key)

    def now(self) -> str:
        """The server's time, as objects carry it."""
        return times.timestamp(self._clock())
