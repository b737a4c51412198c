"""Which container uses how much of which GPU: what pods were given, joined with the processes that the driver shows.

Pure. A container counts on a GPU if it was given a part of it. What no such container accounts for is unattributed.
"""

from collections.abc import Mapping

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import units
from gpushare.core.facts.model import NodeFacts, PodFacts, Role
from gpushare.gpu.sample import Pass
from gpushare.node.pods import NodePods
from gpushare.node.publishing.desired import Held, Wanted
from gpushare.node.usage.model import ContainerUse, GpuUse, Owner


def joined(wants: Wanted, pods: NodePods, sampled: Pass | None, owners: Mapping[int, Owner]) -> tuple[GpuUse, ...]:
    """All GPUs that this node publishes. `sampled` is None if there are no figures, or old ones."""
    facts, size = wants.facts, units.BYTES_IN[wants.facts.unit]
    samples = {sample.uuid: sample for sample in sampled.gpus} if sampled is not None else {}
    on: dict[int, list[ContainerUse]] = {}
    for pod in pods.pods.values():
        for position, use in _given(pod.facts, facts):
            on.setdefault(position, []).append(use)
    gpus = []
    for at, gpu in enumerate(facts.gpus):
        held = wants.held.get(gpu.uuid, Held())
        use_of_gpu = GpuUse(
            gpu.index, gpu.uuid, gpu.model, gpu.total * size, held.units * size, facts.slots, held.slots, gpu.healthy,
            gpu.why, sample=samples.get(gpu.uuid), containers=tuple(on.get(at, ())),
        )  # fmt: skip
        gpus.append(use_of_gpu)
    return tuple(gpus)


def _given(pod: PodFacts, facts: NodeFacts) -> list[tuple[int, ContainerUse]]:
    """The containers of a pod, by the position of each of their GPUs."""
    plan = pod_gpus.planned(pod, facts) if not pod.finished else None
    if plan is None:
        return []
    size = units.BYTES_IN[facts.unit]
    return [
        (gpu, ContainerUse(pod.namespace, pod.name, pod.uid, share.container,
                           share.on(facts.gpus[gpu], facts) * size, share.kind.exclusive))
        for share, chosen in zip(*plan, strict=True)
        if share.role is not Role.INIT
        for gpu in chosen
    ]  # fmt: skip
