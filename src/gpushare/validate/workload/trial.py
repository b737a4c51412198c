"""Tries a pod: makes it, waits for its end, and deletes it, also what an earlier process has left.

It polls, for the few seconds that such a pod lives: a watch would need one more right, and nobody waits for the answer.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts import intree, objects
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload import pod, room
from gpushare.validate.workload.pod import Given, Tried
from gpushare.validate.workload.room import Asked

POLL_SECONDS: Final = 1.0
GONE_SECONDS: Final = 30.0  # for a deleted pod to be gone
NOT_ASKED: Final = "no pod can be tried: {why}"
SEE_RIGHTS: Final = "apply the validator's manifest again: it carries the rights; is the API server up?"
CLASS: Final = "RuntimeClass"  # the API server's words name it where it refuses one
SEE_CLASS: Final = "kubectl get runtimeclass; operator.runtimeClass in the ClusterPolicy, or --runtime-class, names one"
REFUSALS: Final = (400, 403, 422)
WEBHOOK, BY_RBAC = "webhook", " cannot "  # the API server's words
SEE_ADMISSION: Final = (
    "those words name who refuses it: kubectl -n {namespace} get resourcequota,limitrange; the labels "
    "pod-security.kubernetes.io of that namespace; kubectl get validatingwebhookconfigurations"
)
BY_HAND: Final = "-by-hand"
NO_IMAGE: Final = "no pod can be tried: gpushare's own image is not known"
NAME_IT: Final = "--image gpushare:TAG, or OPERAND_IMAGE in the environment"


class Config(NamedTuple):
    """`pod`: our own, whose image and pull secrets are used, and without which the pods that are tried do not live;
    empty: none. `image` wins over its image."""

    node: str
    namespace: str
    pod: str = ""
    image: str = ""
    scheduler: str = ""
    runtime_class: str = ""
    by_hand: bool = False  # by a person, beside the validator of that node, whose pods are not touched

    @property
    def label(self) -> str:
        return node_label(self.node) + (BY_HAND if self.by_hand else "")


class PullSecret(objects.Struct):
    name: str = ""


class OwnContainer(objects.Struct):
    image: str = ""


class OwnSpec(objects.Struct):
    containers: list[OwnContainer] | None = None
    image_pull_secrets: list[PullSecret] | None = None


class Own(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: OwnSpec = msgspec.field(default_factory=OwnSpec)


class Trial:
    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._api, self._config, self._now, self._clock, self._sleep = api, config, now, clock, sleep
        self._turn = asyncio.Lock()  # a trial that was given up still deletes its pod

    async def run(self, node: intree.Node) -> Verdict:
        try:
            async with self._turn:
                return pod.steady(await self._run(node))
        except KubeError as error:
            return pod.steady(verdict.failed(NOT_ASKED.format(why=str(error)), self._way(error)))

    def _way(self, error: KubeError) -> str:
        if CLASS in str(error):
            return SEE_CLASS
        refused = isinstance(error, ApiError) and (error.status in REFUSALS or WEBHOOK in error.message)
        return (
            SEE_ADMISSION.format(namespace=self._config.namespace)
            if refused and BY_RBAC not in str(error)
            else SEE_RIGHTS
        )

    async def _run(self, node: intree.Node) -> Verdict:
        await self.clean_up()
        asks = room.asked(node)
        if asks is None:
            return verdict.skipped(room.SAYS_NOTHING)
        obstacle = room.obstacle(asks, node, await self._pods(), self._now())
        if obstacle is not None:
            return obstacle
        given = await self._given()
        if not given.image:
            return verdict.failed(NO_IMAGE, NAME_IT)
        try:
            return await self._tried(asks, given)
        finally:
            with contextlib.suppress(KubeError):
                await self.clean_up()

    async def clean_up(self) -> None:
        """Deletes the pods that were tried on this node, and returns when they are gone. Raises KubeError."""
        until = self._clock() + GONE_SECONDS
        while (left := await self._listed(self._ours, self._config.namespace)) != []:
            for one in left:
                if one.metadata.deletion_timestamp is None:
                    await self._delete(one)
            if self._clock() >= until:
                return
            await self._sleep(POLL_SECONDS)

    @property
    def _ours(self) -> dict[str, str]:
        labels = {**pod.LABELS, pod.OF_NODE: self._config.label}
        return {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}

    async def _tried(self, asks: Asked, given: Given) -> Verdict:
        scheduler = pod.scheduler_of(asks, given)
        draft = requests.create(resources.PODS, given.namespace, pod.made(asks, given))
        made = await self._api.fetch(draft, Tried)
        began = self._clock()
        while (said := pod.judged(made, asks, scheduler, self._clock() - began)) is None:
            await self._sleep(POLL_SECONDS)
            found = await self._api.find(requests.read(resources.PODS, given.namespace, made.metadata.name), Tried)
            if found is None:
                return verdict.skipped("somebody deleted the pod that was tried")
            made = found
        return said

    async def _given(self) -> Given:
        config, own = self._config, Own()
        if config.pod:
            read = requests.read(resources.PODS, config.namespace, config.pod)
            own = await self._api.find(read, Own) or own
        images = [container.image for container in own.spec.containers or ()]
        return Given(
            config.namespace,
            config.node,
            config.label,
            config.image or next(iter(images), ""),
            tuple(secret.name for secret in own.spec.image_pull_secrets or ()),
            config.scheduler,
            config.runtime_class,
            (own.metadata.name, own.metadata.uid),
        )

    async def _pods(self) -> list[intree.Pod]:
        """Those of this node, and those of no node."""
        return [
            one
            for node in (self._config.node, "")
            for one in await self._listed({"fieldSelector": f"spec.nodeName={node}"})
            if (one.metadata.labels or {}).get("component") != pod.LABELS["component"]
        ]

    async def _listed(self, query: dict[str, str], namespace: str = "") -> list[intree.Pod]:
        pages = self._api.list_pages(resources.PODS, intree.Pod, namespace=namespace, query=query)
        return [one async for page, _ in pages for one in page]

    async def _delete(self, one: intree.Pod) -> None:
        meta = one.metadata
        try:
            await self._api.send(requests.delete(resources.PODS, meta.namespace, meta.name, uid=meta.uid))
        except ApiError as error:
            if error.status not in (404, 409):  # it is gone
                raise


def node_label(node: str) -> str:
    """The name of a node may be longer than a label."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]
