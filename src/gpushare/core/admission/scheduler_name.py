"""A pod that asks for shares, and leaves its scheduler open, gets the scheduler that knows GPUs.

For clusters with a second scheduler: the first would bind such a pod by totals, and to no GPU. A pod that names another
scheduler, or its node, is left alone. deploy/scheduler-name.yaml is the same in CEL.
"""

from typing import Final

from gpushare.core.admission import containers
from gpushare.core.admission.containers import Object
from gpushare.core.facts import names

OPEN: Final = ("", "default-scheduler")  # the API server writes the second where nothing was written


def is_open(pod: Object) -> bool:
    """Whether it leaves to others who places it."""
    spec = containers.spec(pod)
    return (spec.get("schedulerName") or "") in OPEN and not spec.get("nodeName")


def assigned(pod: Object) -> bool:
    """Whether it gets the scheduler that knows GPUs."""
    lists = [containers.listed(pod, field) for field in (containers.APPS, containers.INITS)]
    if not is_open(pod) or not lists[0] or max(map(len, lists)) > containers.MOST:
        return False
    return any(_asks(one) for found in lists for one in found)


def json_patch(pod: Object, scheduler: str) -> list[Object]:
    """Operations of RFC 6902."""
    return [{"op": "add", "path": "/spec/schedulerName", "value": scheduler}] if assigned(pod) else []


def _asks(container: Object) -> bool:
    """nvidia.com/gpu is ours only where admission has pinned it: else it is for NVIDIA's plugin."""
    limits = containers.limits(container)
    if not limits.keys().isdisjoint(names.PINNED):
        return True
    return names.NVIDIA_GPU in limits and bool(containers.pinned_by(container))
