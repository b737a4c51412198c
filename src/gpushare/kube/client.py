"""Requests to the API server, one method each, and nothing that decides.

Used by every component. All requests share one pool of connections, each ends after a bounded time, and a failure is
either an answer (ApiError), no answer (Unreachable, which says whether the request may have been carried out) or
nonsense (Malformed). Bodies are never logged.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import yarl

from gpushare.core.facts import objects
from gpushare.kube import answers, models, stream
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import ApiError, Malformed, Unreachable

T = TypeVar("T")
Params = Mapping[str, str]

TIMEOUT = 10.0  # seconds, for each request
SILENCE = 5.0  # seconds; how long a watch may say nothing before the API server is asked
PATIENCE = 90.0  # seconds; a watch that says nothing for so long is opened again, whatever the API server answers
CONNECTIONS = 200
FIRST_PAGE = 25  # objects; how large they are is not known yet
PAGE_BYTES = 4 << 20  # what is decoded in one go
AGENT = "gpushare"
UID_CHECKED = (1, 23)  # the first version whose binding looks at the pod's uid

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
ALL_PODS, SOME_PODS = "/api/v1/pods", "/api/v1/namespaces/kube-system/pods"
NOBODY = "gpushare-nobody"  # a name that no object has
MUTATING_POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"


class Api:
    """One API server as one user. Made by `connect`."""

    def __init__(self, access: Access, session: aiohttp.ClientSession, timeout: float) -> None:
        self.access = access
        self._session = session
        self._timeout = timeout
        self._version: tuple[int, int] | None = None

    async def get(self, path: str, kind: type[T], params: Params | None = None) -> T:
        return answers.decode(await self._request("GET", path, params), kind, path)

    async def dry_run(self, path: str, draft: object, kind: type[T]) -> T:
        """What a POST would create, as admission leaves it. Nothing is written."""
        return answers.decode(await self._request("POST", path, {"dryRun": "All"}, draft), kind, path)

    async def list_pages(
        self, path: str, kind: type[T], params: Params | None = None, limit: int = 500
    ) -> AsyncIterator[tuple[list[T], str]]:
        """A consistent list page by page, each with the resource version of the whole.

        Asked without a resource version: a list from the API server's cache may lack bound pods. Pages get shorter
        when objects are large. An ApiError 410 between two pages means that they are no list any more: start over.
        """
        asked, size = dict(params or {}), min(limit, FIRST_PAGE)
        while True:
            asked["limit"] = str(size)
            body = await self._request("GET", path, asked)
            page: models.ListOf[T] = answers.decode(body, models.ListOf[kind], path)  # type: ignore[valid-type]
            if not page.metadata.resource_version:
                raise Malformed(f"{path}: a list without a resource version")
            items = page.items or []
            size = max(1, min(limit, PAGE_BYTES * len(items) // len(body))) if items else limit
            yield items, page.metadata.resource_version
            if not page.metadata.continue_:
                return
            asked["continue"] = page.metadata.continue_

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        kind: type[stream.T],
        resource_version: str,
        params: Params | None = None,
        *,
        timeout_seconds: int = 300,
        silence: float = SILENCE,
    ) -> AsyncIterator[AsyncIterator[stream.WatchEvent[stream.T]]]:
        """Entered once the API server has accepted the watch; the iterator ends when the API server ends it.

        An ERROR event is raised as the ApiError it holds; nothing at all for `silence` seconds is an event SILENT.
        """
        asked = dict(params or {})
        asked["watch"] = "true"
        asked["resourceVersion"] = resource_version
        asked["allowWatchBookmarks"] = "true"
        asked["timeoutSeconds"] = str(timeout_seconds)
        response = await self._open("GET", path, asked, endless=True)
        try:
            async with aclosing(stream.events(response.content, kind, path, silence, self._timeout)) as events:
                yield events
        finally:
            response.close()

    async def revision(self, path: str) -> str:
        """The revision of the cluster now, as far as it concerns the objects at that path.

        The cheapest read that tells it: a list of one name, which the API server reads as a single key of etcd and not
        from a cache that may be behind; and as nobody has that name, the answer is empty. Among the pods of all
        namespaces a name is no key, so those of one namespace are asked for. Each kind is asked for itself: an API
        server may keep kinds in different etcds.
        """
        asked = {"fieldSelector": f"metadata.name={NOBODY}"}
        listed = await self.get(SOME_PODS if path == ALL_PODS else path, models.Versioned, asked)
        return listed.metadata.resource_version

    async def get_pod(self, namespace: str, name: str) -> objects.Pod | None:
        return await self._if_there(_pod(namespace, name), objects.Pod)

    async def get_config_map(self, namespace: str, name: str) -> objects.ConfigMap | None:
        return await self._if_there(_config_map(namespace, name), objects.ConfigMap)

    async def create_config_map(
        self, namespace: str, name: str, labels: Mapping[str, str], data: Mapping[str, str]
    ) -> None:
        made = {"metadata": {"name": name, "labels": dict(labels)}, "data": dict(data)}
        await self._request("POST", _config_map(namespace, ""), body=made)

    async def patch_config_map(self, namespace: str, name: str, data: Mapping[str, str]) -> None:
        await self._request("PATCH", _config_map(namespace, name), body={"data": dict(data)}, content_type=MERGE_PATCH)

    async def delete_config_map(self, namespace: str, name: str, uid: str) -> None:
        """409: the name belongs to another one by now."""
        await self._request("DELETE", _config_map(namespace, name), body={"preconditions": {"uid": uid}})

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Sets the pod's node and merges the annotations in one write. 409: it is bound, or another pod by now."""
        try:
            if await self.version() < UID_CHECKED:
                await self._same_pod(namespace, name, uid)
        except Unreachable as error:
            raise Unreachable(error.message, sent=False) from error  # the binding itself was not
        binding = models.Binding(
            metadata=models.ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations)),
            target=models.ObjectReference(kind="Node", name=node),
        )
        await self._request("POST", _pod(namespace, name) + "/binding", body=binding)

    async def patch_pod_annotations(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        """Sets annotations, and removes those that are None. 422: the name belongs to another pod by now."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        await self._request("PATCH", _pod(namespace, name), body=body, content_type=MERGE_PATCH)

    async def patch_node_annotations(self, name: str, annotations: Mapping[str, str]) -> objects.Node:
        """Sets annotations. Answers the node as it is then."""
        return await self._patch_node(_node(name), {"metadata": {"annotations": dict(annotations)}})

    async def patch_node_capacity(self, name: str, capacity: Mapping[str, int]) -> objects.Node:
        """Sets resources that no device plugin reports; kubelet makes them allocatable and keeps them."""
        amounts = {resource: str(amount) for resource, amount in capacity.items()}
        return await self._patch_node(_node(name) + "/status", {"status": {"capacity": amounts}})

    async def has_mutating_policy(self, name: str) -> bool:
        """Whether a MutatingAdmissionPolicy of that name is there; an API server before 1.36 has none."""
        return await self._if_there(f"{MUTATING_POLICIES}/{_segment(name)}", models.Versioned) is not None

    async def create_event(self, event: models.Event) -> None:
        namespace = _segment(event.metadata.namespace)
        await self._request("POST", f"/api/v1/namespaces/{namespace}/events", body=event)

    async def version(self) -> tuple[int, int]:
        """The API server's, asked once."""
        if self._version is None:
            told = await self.get("/version", models.ServerVersion)
            numbers = [re.match(r"\d+", part) for part in (told.major, told.minor)]  # "27+" on some clouds
            if not all(numbers):
                raise Malformed("/version: no major and minor version")
            major, minor = (int(number[0]) for number in numbers if number)
            self._version = (major, minor)
        return self._version

    async def _if_there(self, path: str, kind: type[T]) -> T | None:
        """None: there is none."""
        try:
            return await self.get(path, kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _patch_node(self, path: str, body: object) -> objects.Node:
        return answers.decode(
            await self._request("PATCH", path, body=body, content_type=MERGE_PATCH), objects.Node, path
        )

    async def _same_pod(self, namespace: str, name: str, uid: str) -> None:
        pod = await self.get_pod(namespace, name)
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{name}" not found')
        if pod.metadata.uid != uid:
            raise ApiError(409, "Conflict", f'pods "{name}" has uid {pod.metadata.uid}, not {uid}')

    async def _request(
        self, method: str, path: str, params: Params | None = None, body: object = None, content_type: str = JSON
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        response = await self._open(method, path, params, data, content_type)
        async with response:
            try:
                return await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise answers.unreachable(error, self._timeout) from error

    async def _open(
        self,
        method: str,
        path: str,
        params: Params | None,
        data: bytes | None = None,
        content_type: str = JSON,
        endless: bool = False,
    ) -> aiohttp.ClientResponse:
        """A response with a good status, its body still to be read. After a 401 once more with fresh credentials."""
        headers = await self.access.headers()
        context = self.access.ssl
        response = await self._send(method, path, params, data, content_type, endless, headers)
        if response.status == 401:
            response.close()
            # Of many requests that are refused together, the first one refreshes for all.
            if await self.access.headers() == headers and self.access.ssl is context:
                self.access.refresh()
            headers = await self.access.headers()
            response = await self._send(method, path, params, data, content_type, endless, headers)
        if 200 <= response.status < 300:
            return response
        async with response:
            try:
                async with asyncio.timeout(self._timeout):
                    body = await response.read()
            except (aiohttp.ClientError, OSError):
                body = b""  # the status is answer enough
            raise answers.refusal(response.status, response.reason, response.headers.get("Retry-After"), body)

    async def _send(
        self,
        method: str,
        path: str,
        params: Params | None,
        data: bytes | None,
        content_type: str,
        endless: bool,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        query = f"?{urlencode(params)}" if params else ""
        limit = aiohttp.ClientTimeout(total=None if endless else self._timeout, connect=self._timeout / 2)
        try:
            async with asyncio.timeout(self._timeout if endless else None):
                return await self._session.request(
                    method,
                    yarl.URL(self.access.server + path + query, encoded=True),
                    data=data,
                    headers={**headers, "Content-Type": content_type} if data else headers,
                    timeout=limit,
                    allow_redirects=False,  # the API server sends none, and credentials must not go elsewhere
                    ssl=self.access.ssl or True,
                    server_hostname=self.access.server_name,
                    proxy=self.access.proxy,
                )
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise answers.unreachable(error, self._timeout) from error


@asynccontextmanager
async def connect(access: Access, *, timeout: float = TIMEOUT, agent: str = AGENT) -> AsyncIterator[Api]:
    """Nothing is sent until something is asked. `agent`: as whom the API server's audit knows us."""
    headers = {
        "Accept": JSON,
        "Accept-Encoding": "identity",  # packing costs the API server, and us, more than the network saves
        "User-Agent": agent,
    }
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS), headers=headers, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        yield Api(access, session, timeout)


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def _config_map(namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{_segment(namespace)}/configmaps"
    return f"{path}/{_segment(name)}" if name else path


def _node(name: str) -> str:
    return f"/api/v1/nodes/{_segment(name)}"


def _segment(name: str) -> str:
    """One part of a path. Names come from other people's requests and must not reach another path."""
    if name in ("", ".", ".."):
        raise ApiError(422, "Invalid", f'not a name: "{name}"')
    return quote(name, safe="")
