"""An API server in memory for one node's labels: server-side apply with its owners, NodeFeatures, lists and watches.

Only what programs that label their node ask for. The real one is in tests/e2e/test_finder.py.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gpushare.core.facts import names
from gpushare.kube import client, requests, stream
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.labels.features import NODE_LABEL
from gpushare.kube.requests import Request
from gpushare.kube.resources import NODE_FEATURES

NODE, NAMESPACE = "gpu-a", "gpu-operator"
Object = dict[str, Any]


class LabelApi(client.Api):
    """`nfd`: NodeFeatures are served. `refuses`: every write is answered with it. `sent`: all writes."""

    def __init__(self, *, nfd: bool = False) -> None:
        self.access = login.Access("http://nowhere", context="test", user="tester", source="test")
        self.nfd, self.refuses, self.sent = nfd, dict[str, ApiError](), list[Request]()
        self.node: Object = {"metadata": {"name": NODE, "uid": "u1", "labels": {}}}
        self.features: dict[str, Object] = {}
        self.owned: dict[str, set[str]] = {}
        self._revision = 1
        self._watchers: dict[str, list[asyncio.Queue[tuple[str, Object]]]] = {"nodes": [], "nodefeatures": []}

    # What people, kubelet and NFD do

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["labels"]
        return found

    def label(self, key: str, value: str | None) -> None:
        """As `kubectl label --overwrite` does: whoever owned it, it is another's now."""
        for keys in self.owned.values():
            keys.discard(key)
        if value is None:
            self.labels.pop(key, None)
        else:
            self.labels[key] = value
        self._tell("nodes", stream.MODIFIED, self.node)

    def new_node(self) -> None:
        """The same name, another object."""
        self.node, self.owned = {"metadata": {"name": NODE, "uid": "u2", "labels": {}}}, {}
        self._tell("nodes", stream.MODIFIED, self.node)

    def worker(self, *, runs: bool) -> None:
        """NFD's worker has made its object for this node, or it is gone."""
        found = {"metadata": {"name": NODE, "namespace": "nfd", "labels": {NODE_LABEL: NODE}}, "spec": {"labels": {}}}
        self._feature(found, runs)

    def feature(self, name: str) -> dict[str, str] | None:
        found = self.features.get(f"{NAMESPACE}/{name}")
        return found["spec"]["labels"] if found is not None else None

    # What the API server does

    async def send(self, request: Request) -> bytes:
        if request.method == "GET":
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds-1", "controller": True}
            return json.dumps({"metadata": {"ownerReferences": [owner]}}).encode()
        self.sent.append(request)
        kind = NODE_FEATURES.plural if NODE_FEATURES.plural in request.path else "nodes"
        if (refusal := self.refuses.get(kind)) is not None:
            raise refusal
        await asyncio.sleep(0)
        if kind == "nodes":
            self._apply_labels(request)
        else:
            self._write_feature(request)
        return b"{}"

    def _apply_labels(self, request: Request) -> None:
        body, query = _plain(request.body), request.query or {}
        if body["metadata"]["uid"] != self.node["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "uid mismatch")
        assert query["force"] == "true"
        labels, owner = body["metadata"]["labels"], query["fieldManager"]
        gone = self.owned.get(owner, set()) - set(labels)
        self.owned[owner] = set(labels)
        others = {key for keys in self.owned.values() for key in keys}
        for key in gone - others:
            self.labels.pop(key, None)
        self.labels.update(labels)
        self._tell("nodes", stream.MODIFIED, self.node)

    def _write_feature(self, request: Request) -> None:
        if not self.nfd:
            raise ApiError(404, "NotFound", "no such kind")
        name = request.path.rpartition("/")[2]
        if request.method == "DELETE":
            if f"{NAMESPACE}/{name}" not in self.features:
                raise ApiError(404, "NotFound", name)
            self._feature(self.features[f"{NAMESPACE}/{name}"], False)
        else:
            assert request.content_type == requests.APPLY
            self._feature(_plain(request.body), True)

    def _feature(self, found: Object, there: bool) -> None:
        key = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
        if there:
            self.features[key] = found
        else:
            self.features.pop(key, None)
        self._tell("nodefeatures", stream.MODIFIED if there else stream.DELETED, found)

    async def list_pages(self, resource: Any, kind: Any, **_: Any) -> AsyncIterator[tuple[list[Any], str]]:
        if resource.plural == "nodefeatures" and not self.nfd:
            raise ApiError(404, "NotFound", "no such kind")
        items = [self.node] if resource.plural == "nodes" else list(self.features.values())
        yield [msgspec.convert(self._dated(item), kind) for item in items], str(self._revision)

    @contextlib.asynccontextmanager
    async def watch(
        self, resource: Any, kind: Any, resource_version: str, **_: Any
    ) -> AsyncIterator[AsyncIterator[stream.WatchEvent[Any]]]:
        changes: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()

        async def events() -> AsyncIterator[stream.WatchEvent[Any]]:
            while True:
                type_, item = await changes.get()
                yield stream.WatchEvent(type_, msgspec.convert(item, kind), item["metadata"]["resourceVersion"])

        self._watchers[resource.plural].append(changes)
        yield events()

    async def revision(self, resource: Any, namespace: str = "") -> str:
        return str(self._revision)

    def _tell(self, plural: str, type_: str, item: Object) -> None:
        self._revision += 1
        for changes in self._watchers[plural]:
            changes.put_nowait((type_, self._dated(item)))

    def _dated(self, item: Object) -> Object:
        dated: Object = _plain({**item, "metadata": {**item["metadata"], "resourceVersion": str(self._revision)}})
        return dated


def _plain(body: object) -> Any:
    return json.loads(msgspec.json.encode(body))


def managers(api: LabelApi) -> list[str]:
    """Whose writes were sent."""
    return [(one.query or {}).get("fieldManager", one.method) for one in api.sent]


FINDER_FEATURE = f"{names.FINDER_MANAGER}-{NODE}"
