"""Every object that the operator can be asked to make, whatever the policy and the version of the cluster.

For the rights of the operator: it needs those for the policies of tomorrow, too.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpushare.operator import manifests
from gpushare.operator.desired import whole
from gpushare.operator.desired.component import Cluster
from gpushare.operator.desired.policy import Spec
from gpushare.operator.seeing import kinds

Object = dict[str, Any]

NAMESPACE: Final = "operators-own"
IMAGE: Final = "gpushare:any"
NEWEST, OLDEST = ((1, 36), "v1.36.0"), ((1, 22), "v1.22.0")
SERVED: Final = frozenset(kind.served_as for kind in kinds.KINDS)
ON: Final[Object] = {
    "driver": {"enabled": True, "version": "595.91.07-ubuntu24.04"},
    "toolkit": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
    "monitoring": {"enabled": True},
    "dashboard": {"enabled": True},
}


def everything() -> list[Object]:
    """Objects of the same kind and name may be there several times: components differ with the policy."""
    return [
        one
        for cluster, spec in itertools.product(_clusters(), _specs())
        for component in whole.desired(spec, cluster, manifests.load)
        for one in component.objects
    ]


def _clusters() -> Iterator[Cluster]:
    for version, git_version in (NEWEST, OLDEST):
        yield Cluster(NAMESPACE, version, git_version, IMAGE, kinds=SERVED)


def _specs() -> Iterator[Spec]:
    schedulers = ({"mode": "second"}, {"mode": "extender"})
    admissions = ({"mode": mode, "nvidiaGpu": "whole", "unasked": "void"} for mode in ("policies", "webhook"))
    sold: tuple[Object, ...] = (
        {"sharing": {"sell": "memory"}},
        {"sharing": {"sell": "memory", "mpsSlots": 10}, "mps": {"enabled": True}},
        {"sharing": {"sell": "gpus"}, "mps": {"enabled": True}, "devicePlugin": {"config": {"name": "configs"}}},
    )
    for scheduler, admission, selling in itertools.product(schedulers, admissions, sold):
        yield msgspec.convert({**ON, **selling, "scheduler": scheduler, "admission": admission}, Spec)
