"""`gpushare validate --pod`: a person tries a pod on nodes, with the image and in the namespace of their validators."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpushare.core.facts import intree
from gpushare.kube import client, failures, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import KubeError
from gpushare.obs.errors import UserError
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload.trial import Config, Trial

SELECTOR: Final = "component=gpushare-validator"
AT_ONCE: Final = 8  # nodes
NO_VALIDATOR: Final = "no gpushare-validator runs in this cluster"


class Given(NamedTuple):
    """What the command line says; empty: as of the validators."""

    namespace: str = ""
    image: str = ""
    scheduler: str = ""
    runtime_class: str = ""


async def run(access: Access, nodes: Sequence[intree.Node], given: Given) -> dict[str, Verdict]:
    """By name of the node. Raises UserError."""
    async with client.connect(access) as api:
        try:
            validators = await _validators(api)
        except KubeError as error:
            raise failures.explain(error, access) from None
        turns = asyncio.Semaphore(AT_ONCE)

        async def tried(node: intree.Node) -> Verdict:
            async with turns:
                return await Trial(api, _config(node.metadata.name, given, validators)).run(node)

        said = await asyncio.gather(*map(tried, nodes))
        return {node.metadata.name: one for node, one in zip(nodes, said, strict=True)}


async def _validators(api: client.Api) -> list[intree.Pod]:
    pages = api.list_pages(resources.PODS, intree.Pod, query={"labelSelector": SELECTOR})
    return [one async for page, _ in pages for one in page]


def _config(node: str, given: Given, validators: Sequence[intree.Pod]) -> Config:
    """The pod of the validator on that node, or of any other, says what is not given."""
    near = sorted(validators, key=lambda one: one.spec.node_name != node)
    usable = [one for one in near if given.namespace in ("", one.metadata.namespace)]
    if not usable and not (given.namespace and given.image):
        raise UserError(NO_VALIDATOR, "its namespace and image are used for the pod", "-n NAMESPACE --image IMAGE")
    namespace = given.namespace or usable[0].metadata.namespace
    own = usable[0].metadata.name if usable else ""
    return Config(node, namespace, own, given.image, given.scheduler, given.runtime_class, by_hand=True)
