"""The labels of the operator's own namespace by which Pod Security Admission lets the parts on nodes run there.

They need folders and devices of the node, which only the level `privileged` allows; the operator itself needs nothing
of it. Labels that somebody else wrote are his decision and stay. helm cannot do this: it does not own the namespace.
"""

from typing import Final

from gpushare.core.facts import names
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError
from gpushare.obs import log

LEVEL: Final = "privileged"
LABELS: Final = {f"pod-security.kubernetes.io/{mode}": LEVEL for mode in ("enforce", "audit", "warn")}
CONFLICT: Final = 409

logger = log.get(__name__)


async def keep(api: Api, namespace: str, *, allowed: bool) -> None:
    """The labels are there, or those that are ours are not."""
    try:
        await _apply(api, namespace, LABELS if allowed else {})
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        way = f"kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce={LEVEL}"
        logger.warn("somebody else labelled the namespace for pod security", why=error.message, way=way)


async def _apply(api: Api, namespace: str, labels: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await api.send(requests.apply(resources.NAMESPACES, "", namespace, body, manager=names.OPERATOR_MANAGER))
