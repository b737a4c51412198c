"""`gpushare operator --uninstall`: deletes all policies, and waits until everything of them is gone.

The operator does the work. Where none runs (its image cannot be pulled, it has no replicas, somebody deleted it) a
policy would wait for ever. So this process stands for election, too: while an operator leads it only waits, else it
does the work itself, and wants nothing of any policy.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

from gpushare.core.facts import names
from gpushare.kube import client, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.obs import log
from gpushare.obs.errors import not_asked
from gpushare.operator import app, crds
from gpushare.operator.applying import pod_security
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec
from gpushare.operator.reconcile import Config
from gpushare.operator.seeing.models import Policy

KNOWN_SECONDS: Final = 15.0  # an operator that runs says sooner where it is
GONE_SECONDS: Final = 270.0  # helm gives a hook 300 s

logger = log.get(__name__)


async def uninstall(api: client.Api, namespace: str, *, keep: bool) -> None:
    """At the end takes the labels for pod security from the operator's namespace, if that is known, and deletes the
    kinds unless `keep`."""
    for policy in await _policies(api):
        await crds.drop(api, resources.CLUSTER_POLICIES, policy.name)
    async with _standing_in(api, await _where(api, namespace)):
        await _wait(api)
    if namespace:
        await pod_security.keep(api, namespace, allowed=False)
    if not keep:
        await crds.delete(api)
    logger.info("uninstalled", kinds_kept=keep)


async def _where(api: client.Api, namespace: str) -> str:
    """The operator's namespace, as given or as a status has it; empty: there is nothing left to do there."""
    left = list[Policy]()
    for _ in range(round(KNOWN_SECONDS / crds.LOOK_SECONDS)):
        left = await _policies(api)
        found = namespace or next((home for home in map(_home, left) if home), "")
        if found or not left:
            return found if left else ""
        await asyncio.sleep(crds.LOOK_SECONDS)
    raise not_asked(
        f'ClusterPolicy "{left[0].name}" is still there',
        "no operator runs that would clean up, and its status does not say in which namespace one was",
        "gpushare operator --uninstall --namespace NAME",
    )


async def _wait(api: client.Api) -> None:
    if await crds.within(GONE_SECONDS, lambda: _none_left(api)):
        return
    left = await _policies(api)
    raise not_asked(
        f'ClusterPolicy "{left[0].name}" is still there' if left else "a ClusterPolicy is still there",
        _why(left[0]) if left else "it went only now",
        "kubectl logs of deployment gpushare-operator; it must run until its policy is gone",
    )


@contextlib.asynccontextmanager
async def _standing_in(api: client.Api, namespace: str) -> AsyncIterator[None]:
    """Works as an operator if no other does. An empty namespace: there is nothing to do, or nobody knows where."""
    if not namespace:
        yield
        return
    owners = await app.owners(api, namespace)
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}_uninstall"
    operator = app.Operator(app.Settings(identity, Config(namespace, "", (), _nothing, _none)), api, owners)
    work = asyncio.create_task(operator.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        led = operator.election.leads
        await operator.election.give_back()
    if led and not owners:  # else it goes with the Deployment
        with contextlib.suppress(KubeError):
            await crds.drop(api, resources.LEASES, names.OPERATOR_MANAGER, namespace)


def _nothing(spec: Spec, cluster: Cluster, manifests: Manifests) -> tuple[Component, ...]:
    return ()


def _none(file: str) -> list[dict[str, Any]]:
    return []


def _home(policy: Policy) -> str:
    return str((policy.status or {}).get("namespace") or "")


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
