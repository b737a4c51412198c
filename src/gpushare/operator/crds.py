"""The kinds of objects that come with gpushare: put there before an upgrade, and taken out at the end.

Helm installs kinds and never touches them again, so its hooks call this.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gpushare.core.facts import names, vitals
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError
from gpushare.obs import log
from gpushare.obs.errors import not_asked
from gpushare.operator.applying import pod_security
from gpushare.operator.desired.component import Manifests
from gpushare.operator.seeing.models import Live, Policy

FILES: Final = ("crds/clusterpolicies.yaml",)  # the operator itself makes the others
POLICIES: Final = "clusterpolicies.gpushare.io"
KINDS: Final = (POLICIES, f"{vitals.PLURAL}.{vitals.GROUP}")
LOOK_SECONDS, ESTABLISHED_SECONDS, GONE_SECONDS = 0.5, 30.0, 270.0  # helm gives a hook 300 s

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
        if not await _within(ESTABLISHED_SECONDS, functools.partial(_is_served, api, name)):
            raise not_asked(
                f"kind {name} is not served",
                f"the API server has not accepted it within {ESTABLISHED_SECONDS:.0f} s",
                f"kubectl describe crd {name}",
            )
        logger.info("applied", kind="CustomResourceDefinition", name=name)


async def uninstall(api: client.Api, namespace: str, *, keep: bool) -> None:
    """Deletes all policies, waits until the operator has cleaned up, then takes the labels for pod security from its
    namespace, if that is known, and deletes the kinds unless `keep`."""
    for policy in await _policies(api):
        await _delete(api, resources.CLUSTER_POLICIES, policy.name)
    if not await _within(GONE_SECONDS, lambda: _none_left(api)):
        left = await _policies(api)
        raise not_asked(
            f'ClusterPolicy "{left[0].name}" is still there' if left else "a ClusterPolicy is still there",
            _why(left[0]) if left else "it went only now",
            "kubectl logs of deployment gpushare-operator; it must run until its policy is gone",
        )
    if namespace:
        await pod_security.keep(api, namespace, allowed=False)
    for name in () if keep else KINDS:
        await _delete(api, resources.CUSTOM_RESOURCES, name)
    logger.info("uninstalled", kinds_kept=keep)


def _why(policy: Policy) -> str:
    conditions: list[dict[str, Any]] = (policy.status or {}).get("conditions") or []
    return next((one["message"] for one in conditions), "") or "its operator has not cleaned up"


async def _policies(api: client.Api) -> list[Policy]:
    try:
        return [one async for page, _ in api.list_pages(resources.CLUSTER_POLICIES, Policy) for one in page]
    except ApiError as error:
        if error.status == 404:
            return []  # there is not even the kind
        raise


async def _none_left(api: client.Api) -> bool:
    return not await _policies(api)


async def _is_served(api: client.Api, name: str) -> bool:
    found = await api.find(requests.read(resources.CUSTOM_RESOURCES, "", name), Live)
    conditions = ((found.status if found is not None else None) or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def _delete(api: client.Api, resource: resources.Resource, name: str) -> None:
    try:
        await api.send(requests.delete(resource, "", name))
    except ApiError as error:
        if error.status != 404:
            raise


async def _within(seconds: float, condition: Callable[[], Awaitable[bool]]) -> bool:
    for _ in range(round(seconds / LOOK_SECONDS)):
        if await condition():
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False
