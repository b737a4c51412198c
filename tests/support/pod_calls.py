"""Requests about pods and events as calls of methods, for stand-ins of an API server that keep pods in memory."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import client, models
from gpushare.kube.errors import ApiError
from gpushare.kube.requests import Request


class PodApi(client.Api):
    """Of a new API server: it looks at the uid of a binding itself."""

    def __init__(self) -> None:  # no connection: nothing of the real one
        self._version = (1, 36)

    async def get_pod(self, namespace: str, name: str) -> objects.Pod | None:
        raise NotImplementedError

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        raise NotImplementedError

    async def patch_pod_annotations(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        raise NotImplementedError

    async def create_event(self, event: models.Event) -> None:
        raise NotImplementedError

    async def send(self, request: Request) -> bytes:
        body: Any = request.body
        match request.method, request.path.split("/")[4:]:
            case "GET", [namespace, "pods", name]:
                pod = await self.get_pod(namespace, name)
                if pod is None:
                    raise ApiError(404, "NotFound", f'pods "{name}" not found')
                return msgspec.json.encode(pod)
            case "POST", [namespace, "pods", name, "binding"]:
                meta = body.metadata
                await self.bind(namespace, name, meta.uid, body.target.name, meta.annotations)
            case "PATCH", [namespace, "pods", name]:
                meta = body["metadata"]
                await self.patch_pod_annotations(namespace, name, meta["uid"], meta["annotations"])
            case "POST", [_, "events"]:
                await self.create_event(body)
            case _:
                raise AssertionError(f"nobody asks this: {request.method} {request.path}")
        return b"{}"
