"""What this API server is: its version, and which of the kinds that matter here it serves."""

import re
from typing import Final

from gpushare.core.facts import objects
from gpushare.kube import client, models
from gpushare.kube.errors import Malformed
from gpushare.kube.requests import Request
from gpushare.operator.seeing.kinds import ADMISSION, KINDS, MONITORING

FEATURES: Final = "nfd.k8s-sigs.io/v1alpha1"  # node-feature-discovery
OURS: Final = "gpushare.io/v1alpha1"
GROUPS: Final = (f"{ADMISSION}/v1", f"{MONITORING}/v1", FEATURES, OURS)
MAY_BE_MISSING: Final = frozenset(kind.served_as for kind in KINDS if kind.resource.group in (ADMISSION, MONITORING))


class _Kind(objects.Struct):
    name: str = ""


class _Kinds(objects.Struct):
    resources: list[_Kind] | None = None


async def kinds(api: client.Api) -> frozenset[str]:
    """As `Cluster.kinds` has them. Those of every cluster are not among them."""
    found: set[str] = set()
    for group in GROUPS:
        listed = await api.find(Request("GET", f"/apis/{group}"), _Kinds)
        found |= {f"{one.name}.{group}" for one in (listed.resources or () if listed is not None else ())}
    return frozenset(found)


async def version(api: client.Api) -> tuple[tuple[int, int], str]:
    """As numbers, and as it is written; not remembered, because clusters are upgraded."""
    answer = await api.fetch(Request("GET", "/version"), models.ServerVersion)
    numbers = [re.match(r"\d+", part) for part in (answer.major, answer.minor)]
    if not all(numbers):
        raise Malformed("/version: no major and minor version")
    major, minor = (int(number[0]) for number in numbers if number)
    return (major, minor), answer.git_version
