"""A plain HTTP client for the tests of the test doubles: no hooks, so that it speaks to a real kube-apiserver as well.

Tests named test_api_behaviour* run against the embedded API server, or against the one at GPUSHARE_API_URL (with
GPUSHARE_API_TOKEN, and GPUSHARE_API_CA for its certificate; without a CA the certificate is not checked).
"""

import contextlib
import io
import itertools
import json
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GPU_MEM = "aliyun.com/gpu-mem"
_numbers = itertools.count()


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def reason(self) -> str:
        return str(self.body["reason"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Stream:
    """An open watch; `next()` is the next event that is not a bookmark."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def event(self) -> tuple[str, Object] | None:
        """The next event of any type, None at the end of the stream."""
        line = await self.response.content.readline()
        if not line:
            return None
        event = json.loads(line)
        return event["type"], event["object"]

    async def next(self) -> tuple[str, Object]:
        while (event := await self.event()) is not None:
            if event[0] != "BOOKMARK":
                return event
        raise AssertionError("the watch ended")

    async def named(self, count: int) -> list[tuple[str, str]]:
        """The types and names of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(type_, obj["metadata"]["name"]) for type_, obj in events]


class Api:
    """One API server and one namespace of the test's own in it."""

    def __init__(self, url: str, session: aiohttp.ClientSession, check: ssl.SSLContext | bool = True) -> None:
        self.url, self.session, self._ssl = url, session, check
        self.namespace = "behaviour-" + uuid.uuid4().hex[:10]
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.configmaps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.events = f"/api/v1/namespaces/{self.namespace}/events"

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str | int
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        async with self.session.request(
            method, self.url + path, data=data and io.BytesIO(data), headers=headers, params=query, ssl=self._ssl
        ) as response:
            content = await response.read()
            parsed = json.loads(content) if content[:1] == b"{" else content
            return Answer(response.status, parsed, response.headers)

    async def get(self, path: str, **query: str | int) -> Answer:
        return await self.call("GET", path, None, **query)  # type: ignore[arg-type]  # content_type is no query

    async def create(self, path: str, obj: Object) -> Object:
        answer = await self.call("POST", path, obj)
        assert answer.code == 201, answer.body
        created: Object = answer.body
        return created

    async def patch(self, path: str, patch: Object, content_type: str = MERGE) -> Answer:
        return await self.call("PATCH", path, patch, content_type=content_type)

    async def bind(self, name: str, node: str, **metadata: Any) -> Answer:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
        return await self.call("POST", f"{self.pods}/{name}/binding", body)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: str | int) -> AsyncIterator[Stream]:
        params = {"watch": "true", "timeoutSeconds": 10, **query}
        async with self.session.get(self.url + path, params=params, ssl=self._ssl) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)

    async def make_namespace(self) -> None:
        await self.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        # a real server wants a service account before the first pod; its controller may be faster than this
        account = {"metadata": {"name": "default"}}
        answer = await self.call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", account)
        assert answer.code in (201, 404, 409), answer.body

    async def drop_namespace(self) -> None:
        await self.call("DELETE", self.pods, {"gracePeriodSeconds": 0})
        await self.call("DELETE", f"/api/v1/namespaces/{self.namespace}")


@contextlib.asynccontextmanager
async def connect(url: str, token: str | None = None, ca: str | None = None) -> AsyncIterator[Api]:
    """A client with a namespace of its own, which is deleted in the end."""
    check: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca) if ca else not url.startswith("https")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=1 << 20) as session:
        api = Api(url, session, check)
        await api.make_namespace()
        yield api
        await api.drop_namespace()


def real_server() -> tuple[str, str | None, str | None] | None:
    """Where the behaviour tests should run instead of against the embedded server."""
    url = os.environ.get("GPUSHARE_API_URL")
    return (url, os.environ.get("GPUSHARE_API_TOKEN"), os.environ.get("GPUSHARE_API_CA")) if url else None


def unique(prefix: str) -> str:
    return f"{prefix}-{os.getpid()}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def pod(name: str = "train", *, amount: str | int | None = None, labels: Object | None = None, **spec: Any) -> Object:
    """A pod that no scheduler of a real cluster feels responsible for."""
    resources = {"limits": {GPU_MEM: amount}} if amount is not None else {}
    container = {"name": "main", "image": "busybox", "resources": resources}
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    return {"metadata": metadata, "spec": {"schedulerName": "nobody", "containers": [container], **spec}}


def configmap(name: str = "settings", **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}
