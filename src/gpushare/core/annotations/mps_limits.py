"""What the binding of a pod with MPS shares says besides: how much memory its clients may use, and all its GPUs.

CUDA reads the limits, through an env entry of the container. People and tools of KETI's gpu-scheduler read `UUID`.
Nothing of ours reads either back: what a pod holds is in the other annotations.
"""

from gpushare.core.facts import names, units, visible
from gpushare.core.facts.model import NodeFacts, Places, Request, Share


def write(request: Request, facts: NodeFacts, places: Places) -> dict[str, str]:
    """Empty for a pod without MPS shares. A container that was admitted without the env gets no limits."""
    if not any(share.kind.slots for share in request.shares):
        return {}
    placed = sorted(zip(request.shares, places, strict=True), key=lambda pair: pair[0].position)
    uuids = dict.fromkeys(facts.gpus[gpu].uuid for _, chosen in placed for gpu in chosen)
    written = {names.UUID: ",".join(uuids)}
    for share, chosen in placed:
        if share.limited:
            written[visible.limits_of(share.visible)] = _limits(share, chosen, facts)
    return written


def _limits(share: Share, chosen: tuple[int, ...], facts: NodeFacts) -> str:
    """By ordinal of what the container sees: `0=1536M,1=1536M`. Which of its GPUs is 0 is CUDA's decision (the fastest
    first, unless somebody says otherwise). So where it may use less of one of them, that is the limit on all of them:
    nobody uses what was not counted."""
    least = min(share.on(facts.gpus[gpu], facts) for gpu in chosen)
    mib = least * units.BYTES_IN[facts.unit] // units.BYTES_IN[names.MIB]
    return ",".join(f"{ordinal}={mib}M" for ordinal in range(len(chosen)))
