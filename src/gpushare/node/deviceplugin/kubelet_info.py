"""What this node's kubelet is like, as far as it matters to a device plugin.

From 1.36 on kubelet writes every device a container has into its pod's status. With one device for each MiB that is
megabytes, rewritten every minute, and beyond some size the API server refuses it: the pod can neither run nor be
deleted. So containers have a limit there, and the node gets a Warning that says what to do.
"""

import re
from typing import Final

import msgspec

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Data, Unit
from gpushare.kube.client import Api

REPORTS_UNITS: Final = (1, 36)  # kubelet, from then on
MOST_REPORTED: Final = 50_000  # units; at 80,000 the status is refused
CGPU_LABEL: Final = "cgpu.disable.isolation"
COSTLY: Final = "DevicePluginInMiB"
COSTLY_WHY: Final = (
    "kubelet {version} writes every MiB into pod status. Set its featureGates ResourceHealthStatus and "
    "ResourceHealthStatusMessage to false, or use --pin=direct."
)


class NodeInfo(objects.Struct):
    kubelet_version: str = ""


class Status(objects.NodeStatus):
    node_info: NodeInfo | None = None


class Node(objects.Node):
    status: Status = msgspec.field(default_factory=Status)


class Kubelet(Data, frozen=True):
    """`most`: units that one container may have; `warning`: what people should know, or nothing."""

    most: int | None
    warning: str
    cgpu_disabled: bool


async def read(api: Api, node: str) -> Node:
    return await api.get(f"/api/v1/nodes/{node}", Node)


def judge(node: Node, unit: Unit) -> Kubelet:
    version = node.status.node_info.kubelet_version if node.status.node_info else ""
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    reports = numbers is not None and (int(numbers[1]), int(numbers[2])) >= REPORTS_UNITS
    costly = reports and unit == names.MIB
    return Kubelet(
        most=MOST_REPORTED if costly else None,
        warning=COSTLY_WHY.format(version=version) if costly else "",
        cgpu_disabled=(node.metadata.labels or {}).get(CGPU_LABEL) == "true",
    )
