"""Takes a policy's things out of the cluster, one step after the other, each from what is seen now.

Programs go first and are waited for: one that still runs would write again what is taken back. Then everything else of
the policy, then what nodes and node-feature-discovery have from us, and last the finalizer. Killed at any moment, the
next operator goes on where this one stopped.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpushare.core.facts import names, objects
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.operator.applying.applier import Applier, goes, is_program
from gpushare.operator.applying.ending import Ending
from gpushare.operator.applying.labeller import Labeller
from gpushare.operator.applying.writer import Writer, sentence
from gpushare.operator.seeing.keys import Key
from gpushare.operator.seeing.models import Live, Meta, Policy
from gpushare.operator.seeing.watches import OURS, Seen

FEATURES_SERVED: Final = "nodefeatures.nfd.k8s-sigs.io/v1alpha1"
OUR_FEATURES: Final = "gpushare-"  # how the names of NodeFeatures of ours begin


class Left(NamedTuple):
    """What has to go before the policy can. `failed`: a request did, so nobody will tell when to go on."""

    texts: list[str]
    failed: bool = False


class Finalizer:
    def __init__(
        self,
        api: client.Api,
        writer: Writer,
        applier: Applier,
        labeller: Labeller,
        seen: Seen,
        namespace: str,
        ending: Ending,
    ) -> None:
        self._api, self._writer, self._applier, self._labeller = api, writer, applier, labeller
        self._seen, self._namespace, self._ending = seen, namespace, ending

    async def clean_up(self, policy: Policy, served: frozenset[str], *, alone: bool) -> Left:
        """As far as it gets; nothing is left: all is gone, and the policy with it. `alone`: nodes have been labelled
        for this policy; one that was ignored has only what it may have owned before."""
        try:
            if policy.uid in self._seen.policies.orphaning:
                await self._release(policy)
                return Left([])
            return await self._step(policy, served, alone=alone)
        except KubeError as error:
            return Left([f"deleting failed: {sentence(error)}"], failed=True)

    async def _step(self, policy: Policy, served: frozenset[str], *, alone: bool) -> Left:
        left = list(goes(self._seen.owned, policy))
        programs = [one for one in left if is_program(one[0])]
        waits = await self._delete(programs) + (list(self._running()) if alone else [])
        if alone and not waits:
            waits = await self._unseen()
        waits = waits or await self._delete(left)
        if waits:
            return Left(waits)
        if alone:
            if FEATURES_SERVED in served:
                await self._delete_features()
            failures = await self._labeller.take_back()
            if failures:
                return Left(failures, failed=True)
        await self._release(policy)
        return Left([])

    async def _delete(self, objects: list[tuple[Key, Live]]) -> list[str]:
        for key, live in objects:
            await self._applier.delete(key, live)
        return [f"waiting until {key} is gone" for key, _ in objects]

    def _running(self) -> Iterator[str]:
        for pod in self._ending.running():
            yield f"{pod.component}: {pod.node}: waiting until pod {pod.name} has ended"

    async def _unseen(self) -> list[str]:
        """Pods that a DaemonSet made in its last moment: the watch may not have shown them yet, and will."""
        pages = self._api.list_pages(resources.PODS, _Named, namespace=self._namespace, query=OURS)
        listed = [one.metadata async for items, _ in pages for one in items]
        return [
            f"waiting until pod {one.name} has ended" for one in listed if one.uid not in self._seen.pods.found
        ]  # fmt: skip

    async def _delete_features(self) -> None:
        pages = self._api.list_pages(resources.NODE_FEATURES, _Named, namespace=self._namespace)
        found = [item.metadata.name async for items, _ in pages for item in items]
        for name in found:
            if name.startswith(OUR_FEATURES):
                await self._writer.delete(requests.delete(resources.NODE_FEATURES, self._namespace, name))

    async def _release(self, policy: Policy) -> None:
        kept = [one for one in policy.metadata.finalizers or () if one != names.CLEAN_UP]
        await set_finalizers(self._writer, policy, kept)


class _Named(objects.Struct):
    metadata: Meta


async def set_finalizers(writer: Writer, policy: Policy, finalizers: list[str]) -> None:
    """The list is written as a whole, so nobody may have changed it meanwhile: 409 then."""
    metadata = {"finalizers": finalizers, "resourceVersion": policy.metadata.resource_version}
    try:
        await writer.send(requests.patch(resources.CLUSTER_POLICIES, "", policy.name, {"metadata": metadata}))
    except ApiError as error:
        if error.status not in (404, 409):
            raise
