"""What a device plugin has to know about this node's kubelet: its version, and what follows from it.

Where kubelet can report only so many units of a container (`kubelet.status_limit`), containers have a limit, and the
node gets a Warning event that says what to do.
"""

from typing import Final

from gpushare.core.facts import objects
from gpushare.core.facts.model import Data, Unit
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kubelet import status_limit

CGPU_LABEL: Final = "cgpu.disable.isolation"
COSTLY: Final = "DevicePluginInMiB"
COSTLY_WHY: Final = (
    "kubelet {version} writes every MiB into pod status. Set its featureGates ResourceHealthStatus and "
    "ResourceHealthStatusMessage to false, or use --pin=direct."
)


class Kubelet(Data, frozen=True):
    """`most`: units that one container may have. `warning`: the text of the event; empty: none."""

    most: int | None
    warning: str
    cgpu_disabled: bool


async def read(api: Api, node: str) -> objects.Node:
    return await api.fetch(requests.read(resources.NODES, "", node), objects.Node)


def judge(node: objects.Node, unit: Unit) -> Kubelet:
    version = node.status.kubelet_version
    most = status_limit.most_units(version, unit)
    return Kubelet(
        most=most or None,
        warning=COSTLY_WHY.format(version=version) if most else "",
        cgpu_disabled=(node.metadata.labels or {}).get(CGPU_LABEL) == "true",
    )
