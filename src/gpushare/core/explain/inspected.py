"""Who uses how much of which GPU, for people and for programs.

Pure. `inspected` is one node in the JSON form of Aliyun's gpushare: the extender's `/inspect` and `gpushare inspect -o
json` print it. Keys are only ever added. `gpus_of` says which container of a pod has which GPU.
"""

import msgspec

from gpushare.core.annotations.pod_gpus import Allocation
from gpushare.core.explain import measured
from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts, Pin, PodFacts, Request
from gpushare.core.facts.vitals import GpuVitals, Status
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.node_state import NodeState


def inspected(state: NodeState, status: Status | None = None) -> dict[str, object]:
    """A node that shares GPUs. An unlocated pod counts on every GPU, and is listed under none.

    `status`: what its GPUs do, if that is known and fresh.
    """
    facts = state.facts
    assert facts is not None
    used = [min(taken, gpu.total) for taken, gpu in zip(state.effective().units, facts.gpus, strict=True)]
    figures = measured.by_index(status.gpus or (), facts) if status is not None else {}
    devices = []
    for at, (gpu, taken) in enumerate(zip(facts.gpus, used, strict=True)):
        doing = figures.get(gpu.index)
        device: dict[str, object] = {"id": gpu.index, "totalGPU": gpu.total, "usedGPU": taken, "healthy": gpu.healthy}
        device["pods"] = _pods(state, at, doing)
        if facts.slots:
            device |= {"slots": facts.slots, "usedSlots": state.used_slots[at]}
        if doing is not None and status is not None:
            device |= measured.device_keys(doing, status.sampled_at)
        devices.append(device)
    sells = {"nvidia": "whole"} if facts.nvidia_whole else {}
    sells |= {"mps": facts.mps_down} if facts.mps_down else {}
    amounts = {"name": state.name, "unit": facts.unit, "totalGPU": facts.capacity, "usedGPU": sum(used)}
    return amounts | sells | {"devs": devices}


def _pods(state: NodeState, gpu: int, doing: GpuVitals | None) -> list[dict[str, object]]:
    """The pods bound to a GPU, by its position in the node's list."""
    there = sorted(
        (holding.pod.namespace, holding.pod.name, charge.units, charge.slots, holding.pod.uid)
        for holding in state.holdings()
        if holding.state is State.BOUND
        for charge in holding.charges or ()
        if charge.gpu == gpu
    )
    sold = state.facts is not None and state.facts.slots > 0
    return [
        {"name": name, "namespace": namespace, "usedGPU": units}
        | ({"usedSlots": slots} if sold else {})
        | measured.pod_keys(doing, uid)
        for namespace, name, units, slots, uid in there
    ]


def gpus_of(pod: PodFacts, facts: NodeFacts) -> dict[str, list[int]]:
    """The GPUs of each container, by index, for a pod whose annotations are usable: see `pod_gpus.read`.

    On plugin nodes an init container that holds nothing beyond the others is in no annotation: it is left out.
    """
    if not isinstance(pod.request, Request):
        return {}
    direct = facts.pin is Pin.DIRECT and pod.request.pin is Pin.DIRECT
    index_of = {gpu.uuid: gpu.index for gpu in facts.gpus}
    written = pod.annotation(names.ALLOCATION)
    allocation = msgspec.json.decode(written, type=Allocation) if written is not None and not direct else None
    gpus: dict[str, list[int]] = {}
    for share in pod.request.shares:
        if direct:
            chosen = [index_of[uuid] for uuid in (pod.annotation(share.visible) or "").split(",") if uuid in index_of]
        elif allocation is not None:
            chosen = [int(index) for index in allocation.get(str(share.position), {})]
        else:
            chosen = [int(pod.annotation(names.ALIYUN_IDX) or 0)]
        if chosen:
            gpus[share.container] = sorted(chosen)
    return gpus
