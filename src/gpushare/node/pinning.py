"""How containers of this node learn their GPUs, decided once at the start; and that NVIDIA's plugin is not there, too.

`auto` is `direct` if the cluster has the admission policy of deploy/admission.yaml, because then every pod that asks
for GPUs is prepared for it. Without the policy, or without the right to read it, `auto` is `plugin`.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Literal

from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import Pin
from gpushare.kube import loop, models, requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.obs import errors, log

POLICY = "gpushare-pin"
FORBIDDEN = 403

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
    try:
        policy = requests.read(resources.MUTATING_POLICIES, "", POLICY)
        if await api.find(policy, models.Versioned) is not None:
            return Pin.DIRECT, f"admission policy {POLICY} is there"
        return Pin.PLUGIN, f"admission policy {POLICY} is not there"
    except KubeError as error:
        if isinstance(error, ApiError) and error.status == FORBIDDEN:
            return Pin.PLUGIN, f"no right to read admission policy {POLICY}"
        logger.warn("cannot read the admission policy, trying again", why=str(error))
        return None


def refuse_beside_nvidia(node: objects.Node) -> None:
    """Two plugins would give each GPU away twice. Also if ours sells whole GPUs, in the place of NVIDIA's."""
    count = sum(units.number(node.status.allocatable, name) for name in names.NVIDIA_GPUS)
    if count:
        name = node.metadata.name
        raise errors.UserError(
            f"{name}: NVIDIA's device plugin gives out the same GPUs",
            f"allocatable {names.NVIDIA_GPU} is {count}: each GPU would be given away twice",
            f"kubectl label node {shlex.quote(name)} nvidia.com/gpu.deploy.device-plugin=false (GPU Operator), "
            "or keep its DaemonSet off this node",
        )
