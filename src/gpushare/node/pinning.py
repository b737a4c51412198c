"""How containers of this node learn their GPUs, decided once at the start; and that NVIDIA's plugin is not there, too.

`auto` is `direct` if the cluster has the admission policy of deploy/admission.yaml, or the webhook of
deploy/webhook.yaml, because then every pod that asks for GPUs is prepared for it. Without both, or without the right to
look, `auto` is `plugin`.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Literal

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import Pin
from gpushare.kube import loop, requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.obs import errors, log

POLICY = "gpushare-pin"  # the webhook's configuration has the same name
GONE = (403, 404)  # not there, or not to be seen; 404 also where API servers know no such policies

Choice = Literal["auto", "direct", "plugin"]

logger = log.get(__name__)


async def decide(choice: Choice, api: Api, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> Pin:
    if choice != "auto":
        return Pin(choice)
    pin, why = await loop.until_done(lambda: _look(api), sleep=sleep)
    logger.info("pin", pin=pin.value, why=why)
    return pin


async def _look(api: Api) -> tuple[Pin, str] | None:
    """How to pin, and the reason; None if the API server could not be asked."""
    asked = {
        "admission policy": requests.read(resources.MUTATING_POLICIES, "", POLICY),
        "webhook configuration": requests.read(resources.MUTATING_WEBHOOKS, "", POLICY),
    }
    reasons = []
    for what, request in asked.items():
        try:
            await api.send(request)
            return Pin.DIRECT, f"{what} {POLICY} is there"
        except KubeError as error:
            if not (isinstance(error, ApiError) and error.status in GONE):
                logger.warn("cannot read the admission policy, trying again", why=str(error))
                return None
            reasons.append(f"{what} {POLICY}: {error.reason}")
    return Pin.PLUGIN, ", ".join(reasons)


def refuse_beside_nvidia(node: objects.Node, ours: int = 0) -> None:
    """Two plugins would give each GPU away twice. What we sold under NVIDIA's name before is not its plugin: there is
    one for each GPU at most, and our annotation says so, or we are told to sell it again (`ours`: so many)."""
    count = sum(units.number(node.status.allocatable, name) for name in names.NVIDIA_GPUS)
    published = node_gpus.read(node, frozenset())
    before = len(published.gpus) if published is not None and published.nvidia_whole else 0
    if count > max(before, ours):
        name = node.metadata.name
        raise errors.UserError(
            f"{name}: NVIDIA's device plugin gives out the same GPUs",
            f"allocatable {names.NVIDIA_GPU} is {count}: each GPU would be given away twice",
            f"kubectl label node {shlex.quote(name)} nvidia.com/gpu.deploy.device-plugin=false (GPU Operator), "
            "or keep its DaemonSet off this node",
        )


def refuse_to_sell(pin: Pin, *, slots: int, nvidia_whole: bool, node: objects.Node) -> None:
    """Only the binding can pin MPS shares, and whole GPUs by NVIDIA's name: a device plugin serves neither."""
    if pin is Pin.DIRECT:
        return
    flags = [f"--mps-slots={slots}"] * bool(slots) + ["--nvidia-gpu=whole"] * nvidia_whole
    if flags:
        raise errors.UserError(
            f"{node.metadata.name}: {' and '.join(flags)} cannot be served by a device plugin",
            "this node pins by device plugin: by --pin, or because the cluster has no admission policy of gpushare",
            "apply deploy/admission.yaml and start with --pin=direct, or leave that out",
        )
    before = node_gpus.read(node, frozenset())
    if before is not None and (before.slots or before.nvidia_whole):
        raise errors.UserError(
            f"{node.metadata.name}: it still sells MPS slots or {names.NVIDIA_GPU}, which a device plugin cannot serve",
            "it pinned directly until now, and its capacity still says so",
            "start it once with --pin=direct, without --mps-slots and --nvidia-gpu, until its pods are gone",
        )
