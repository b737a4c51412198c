"""Whom an object of a pod belongs to: the pod's DaemonSet, so that it outlives one pod, and goes with the last."""

from typing import Any

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import requests, resources
from gpushare.kube.client import Api


class _Owner(objects.Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Metadata(objects.Struct):
    owner_references: list[_Owner] | None = None


class _Pod(objects.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def of_pod(api: Api, namespace: str, pod: str) -> list[dict[str, Any]]:
    """As ownerReferences are written. None if this is no pod of a DaemonSet. Raises KubeError."""
    found = await api.find(requests.read(resources.PODS, namespace, pod), _Pod) if pod else None
    owners = (found.metadata.owner_references if found is not None else None) or ()
    return [msgspec.to_builtins(one) for one in owners if one.kind == "DaemonSet"]
