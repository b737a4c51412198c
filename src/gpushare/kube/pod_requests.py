"""What components ask the API server about single pods: read one, set annotations, bind, evict.

A name may belong to another pod by now: writes carry the uid of the pod that is meant.
"""

from collections.abc import Mapping
from typing import Final

from gpushare.core.facts import objects
from gpushare.kube import models, requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, Unreachable
from gpushare.kube.requests import Request

UID_CHECKED: Final = (1, 23)  # the first version whose binding looks at the pod's uid


async def read(api: Api, namespace: str, name: str) -> objects.Pod | None:
    """None: there is no such pod."""
    return await api.find(requests.read(resources.PODS, namespace, name), objects.Pod)


async def annotate(api: Api, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    """Sets annotations, and removes those that are None. 422: the name belongs to another pod by now."""
    body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    await api.send(requests.patch(resources.PODS, namespace, name, body))


async def bind(api: Api, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
    """Sets the pod's node and merges the annotations in one write. 409: it is bound, or another pod by now."""
    try:
        if await api.version() < UID_CHECKED:
            await _same_pod(api, namespace, name, uid)
    except Unreachable as error:
        raise Unreachable(error.message, sent=False) from error  # the binding itself was not
    binding = models.Binding(
        metadata=models.ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations)),
        target=models.ObjectReference(kind="Node", name=node),
    )
    await api.send(Request("POST", resources.PODS.item(namespace, name, "binding"), body=binding))


async def evict(api: Api, namespace: str, name: str, uid: str) -> None:
    """Asks for its orderly end. 429: a disruption budget keeps it for now. 409: the name belongs to another pod by now.
    404: it is gone."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    await api.send(Request("POST", resources.PODS.item(namespace, name, "eviction"), body=body))


async def _same_pod(api: Api, namespace: str, name: str, uid: str) -> None:
    pod = await read(api, namespace, name)
    if pod is None:
        raise ApiError(404, "NotFound", f'pods "{name}" not found')
    if pod.metadata.uid != uid:
        raise ApiError(409, "Conflict", f'pods "{name}" has uid {pod.metadata.uid}, not {uid}')
