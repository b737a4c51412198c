"""The kinds of objects that come with gpushare: put there before an upgrade, and taken out at the end.

Helm installs kinds and never touches them again, so its hooks call this.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.core.facts import names, vitals
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError
from gpushare.obs import log
from gpushare.obs.errors import not_asked
from gpushare.operator.desired.component import Manifests
from gpushare.operator.seeing.models import Live

FILES: Final = ("crds/clusterpolicies.yaml",)  # the operator itself makes the others
POLICIES: Final = "clusterpolicies.gpushare.io"
KINDS: Final = (POLICIES, f"{vitals.PLURAL}.{vitals.GROUP}")
LOOK_SECONDS, ESTABLISHED_SECONDS = 0.5, 30.0

logger = log.get(__name__)


async def install(api: client.Api, manifests: Manifests) -> None:
    """Returns when the API server serves them."""
    for document in (one for file in FILES for one in manifests(file)):
        name = document["metadata"]["name"]
        await api.send(
            requests.apply(
                resources.CUSTOM_RESOURCES, "", name, document, manager=names.OPERATOR_MANAGER, force=True
            )
        )  # fmt: skip
        if not await within(ESTABLISHED_SECONDS, functools.partial(_is_served, api, name)):
            raise not_asked(
                f"kind {name} is not served",
                f"the API server has not accepted it within {ESTABLISHED_SECONDS:.0f} s",
                f"kubectl describe crd {name}",
            )
        logger.info("applied", kind="CustomResourceDefinition", name=name)


async def delete(api: client.Api) -> None:
    """That of GPUNodes only if the operator made it, and could not delete it any more."""
    for name in KINDS:
        found = await api.find(requests.read(resources.CUSTOM_RESOURCES, "", name), Live)
        labels = (found.metadata.labels if found is not None else None) or {}
        if name == POLICIES or labels.get(names.MANAGED_BY[0]) == names.MANAGED_BY[1]:
            await drop(api, resources.CUSTOM_RESOURCES, name)


async def _is_served(api: client.Api, name: str) -> bool:
    found = await api.find(requests.read(resources.CUSTOM_RESOURCES, "", name), Live)
    conditions = ((found.status if found is not None else None) or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def drop(api: client.Api, resource: resources.Resource, name: str, namespace: str = "") -> None:
    """Or it is gone already."""
    try:
        await api.send(requests.delete(resource, namespace, name))
    except ApiError as error:
        if error.status != 404:
            raise


async def within(seconds: float, condition: Callable[[], Awaitable[bool]]) -> bool:
    for _ in range(round(seconds / LOOK_SECONDS)):
        if await condition():
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False
