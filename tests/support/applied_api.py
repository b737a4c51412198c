"""An API server in memory, for whoever writes with server-side apply: objects by path, and who applied which label.

It stands in for `client.Api`. What it cannot do fails a test instead of passing it. A failure may be put before any
request, and each write is remembered.
"""

import copy
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.requests import APPLY, Query, Request
from gpushare.kube.resources import Resource

Object = dict[str, Any]
T = TypeVar("T")

FORCED = ("labels", "annotations")


class AppliedApi:
    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[str] = []
        self.refuse: Callable[[Request], KubeError | None] = lambda request: None
        self._versions = itertools.count(1)

    # As client.Api

    async def send(self, request: Request) -> bytes:
        refused = self.refuse(request)
        if refused is not None:
            raise refused
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")
        return msgspec.json.encode(self._answer(request))

    async def fetch(self, request: Request, kind: type[T]) -> T:
        return msgspec.json.decode(await self.send(request), type=kind)

    async def find(self, request: Request, kind: type[T]) -> T | None:
        try:
            return await self.fetch(request, kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list_pages(
        self, resource: Resource, kind: type[T], *, namespace: str = "", query: Query | None = None
    ) -> AsyncIterator[tuple[list[T], str]]:
        found = [one for path, one in self.objects.items() if path.startswith(resource.collection(namespace) + "/")]
        yield [msgspec.convert(one, kind) for one in found], "1"

    # For tests

    def put(self, path: str, content: Object) -> Object:
        """As if it had been there."""
        metadata = {"name": path.rpartition("/")[2], "uid": f"uid-{path}", **content.get("metadata", {})}
        made = {**content, "metadata": {**metadata, "resourceVersion": str(next(self._versions))}}
        self.objects[path] = made
        return made

    def _answer(self, request: Request) -> Object:
        path, _, status = request.path.partition("/status")
        match request.method:
            case "GET":
                return self._there(path)
            case "DELETE":
                return self._delete(path, request)
            case "PATCH" if request.content_type == APPLY:
                assert not status
                return self._apply(path, request)
            case "PATCH":
                return self._merge(path, msgspec.to_builtins(request.body))
        raise AssertionError(request)

    def _there(self, path: str) -> Object:
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return self.objects[path]

    def _delete(self, path: str, request: Request) -> Object:
        found = self._there(path)
        wanted: Any = request.body
        if wanted and wanted["preconditions"]["uid"] != found["metadata"]["uid"]:
            raise ApiError(409, "Conflict", path)
        return self.objects.pop(path)

    def _merge(self, path: str, patch: Object) -> Object:
        found = self._there(path)
        version = patch.get("metadata", {}).pop("resourceVersion", found["metadata"]["resourceVersion"])
        if version != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        made = _merged(found, patch)
        return self.put(path, made) if made != found else found

    def _apply(self, path: str, request: Request) -> Object:
        body, query = copy.deepcopy(msgspec.to_builtins(request.body)), request.query or {}
        found, manager = self.objects.get(path), query["fieldManager"]
        metadata = body["metadata"]
        if metadata.get("uid") and (found is None or found["metadata"]["uid"] != metadata["uid"]):
            raise ApiError(409, "Conflict", path)
        before = copy.deepcopy(found or {"metadata": {}})
        owners: dict[str, dict[str, list[str]]] = before["metadata"].setdefault("owned", {})
        mine = owners.get(manager, {})
        for field in FORCED:
            kept = {key: value for key, value in (before["metadata"].get(field) or {}).items()
                    if key not in mine.get(field, ()) or key in (metadata.get(field) or {})}  # fmt: skip
            before["metadata"][field] = {**kept, **(metadata.pop(field, None) or {})}
        owners[manager] = {field: list(_given(request, field)) for field in FORCED}
        content = {key: value for key, value in body.items() if key != "metadata"}
        made = {**before, **content, "metadata": {**before["metadata"], **metadata}}
        made["metadata"]["managedFields"] = [_entry(name, keys) for name, keys in owners.items() if any(keys.values())]
        return self.put(path, made) if made != found else made


def _given(request: Request, field: str) -> dict[str, str]:
    given: dict[str, str] = msgspec.to_builtins(request.body)["metadata"].get(field) or {}
    return given


def _entry(manager: str, keys: dict[str, list[str]]) -> Object:
    fields: Object = {f"f:{field}": {f"f:{key}": {} for key in found} for field, found in keys.items() if found}
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": fields}}


def _merged(there: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    made = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made
