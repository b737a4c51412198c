"""Which pods' annotations differ from what their containers really got, and what they must say.

Pure. The extender writes the annotations at the binding, as a plan. kubelet may serve two equal pods in the other
order, or a container may have been placed elsewhere: then the annotations must say where the containers really are.
"""

from typing import NamedTuple

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Request, Role, Share
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.allocation.table import Owner


class Patch(NamedTuple):
    pod: PodFacts
    annotations: dict[str, str | None]


def patches(state: State) -> list[Patch]:
    """The pods whose annotations are wrong or incomplete, and the values to write."""
    patches = []
    for uid, pod in state.plans.pods.items():
        wanted = _annotations(state, uid, pod)
        missing = {key: value for key, value in wanted.items() if (pod.annotation(key) or None) != value}
        if missing:
            patches.append(Patch(pod, missing))
    return patches


def _annotations(state: State, uid: str, pod: PodFacts) -> dict[str, str | None]:
    """All annotations if the pod is on other GPUs than they say; else only that it has got its units. If it got more or
    fewer GPUs than it asks, because it was mistaken for another pod, they are removed: it then counts on every GPU."""
    if not isinstance(pod.request, Request):
        return {}
    shares = pod.request.shares
    if any(_has_other_gpus(state, Owner(uid, i), share) for i, share in enumerate(shares)):
        return dict.fromkeys((names.ALIYUN_IDX, names.ALLOCATION))
    places = [_place(state, Owner(uid, i)) for i in range(len(shares))]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return {}
    assigned: dict[str, str | None] = {}
    if all(_is_sure(state, Owner(uid, i)) for i in range(len(shares))):
        assigned[names.ALIYUN_ASSIGNED] = "true"
    annotated = pod_gpus.planned(pod, state.facts)
    actual = pod_gpus.allocation(shares, state.facts, tuple(known))
    if annotated is not None and pod_gpus.allocation(annotated[0], state.facts, annotated[1]) == actual:
        return assigned
    written = pod_gpus.write(pod.request, state.facts, tuple(known), extender="", nanoseconds=0)
    ours = (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, names.ALLOCATION)
    return {key: written[key] for key in ours} | assigned


def _has_other_gpus(state: State, owner: Owner, share: Share) -> bool:
    grant = state.table.of(owner)
    has = grant is not None and grant.confirmed and share.role is not Role.INIT
    return grant is not None and has and len(grant.gpus) != share.gpus


def _is_sure(state: State, owner: Owner) -> bool:
    grant = state.table.of(owner)
    return grant is not None and grant.confirmed


def _place(state: State, owner: Owner) -> tuple[int, ...] | None:
    """The GPUs of a share, by position: those it has, or those of its plan."""
    position = {gpu.uuid: at for at, gpu in enumerate(state.facts.gpus)}
    share = state.share(owner)
    grant = state.table.of(owner)
    if grant is None:
        gpus = list(state.plans.planned(owner) or ())
    elif share.role is Role.INIT:
        gpus = _pool(state, owner)[: share.gpus]
    else:
        gpus = sorted(grant.gpus, key=lambda uuid: position.get(uuid, -1))
    if len(gpus) != share.gpus or any(uuid not in position for uuid in gpus):
        return None
    return tuple([position[uuid] for uuid in gpus])


def _pool(state: State, owner: Owner) -> list[str]:
    """The GPUs of a pod's init containers: first those of the later containers that took from them."""
    together = sorted(state.together(owner), key=lambda o: state.share(o).role is Role.INIT)
    grants = [state.table.of(other) for other in together]
    return list(dict.fromkeys(uuid for grant in grants if grant is not None for uuid in sorted(grant.gpus)))
