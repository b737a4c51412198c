"""Translates kubelet's list of devices (pod resources) into units and owners that the table knows.

Pure. kubelet names a pod by namespace and name, and units by id. An id may also be from Aliyun's plugin, or from a time
when the node counted in another unit: of such units only the number is known, and the pod's annotation says on which
GPU they are.
"""

from collections.abc import Mapping
from typing import Final

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import units
from gpushare.kubelet.podresources import Listed
from gpushare.kubelet.unit_ids import Ids
from gpushare.node.deviceplugin.allocation.correct import Held
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.allocation.table import Owner

ALIYUN_SEPARATOR: Final = "-_-"  # between uuid and number in the ids of Aliyun's plugin


def held(state: State, listed: list[Listed], uids: Mapping[tuple[str, str], str]) -> list[Held]:
    """What each container on the list holds. `uids`: of the pods, by namespace and name."""
    return [_held(state, entry, uids.get((entry.namespace, entry.pod), "")) for entry in listed]


def _held(state: State, entry: Listed, uid: str) -> Held:
    shares = enumerate(state.plans.shares(uid))
    owner = next((Owner(uid, i) for i, s in shares if s.container == entry.container and s.kind is entry.kind), None)
    if entry.kind.exclusive:
        return Held(owner, {uuid: 1 for uuid in entry.ids if uuid in state.table.gpus}, entry.kind, {})
    totals = {uuid: gpu.total for uuid, gpu in state.table.gpus.items()}
    reader = state.catalog.reader(Ids.of(entry.ids))
    known = reader.all(totals)
    unknown = len(entry.ids) - sum(bits.bit_count() for bits in known.values())
    return Held(owner, known, entry.kind, _strange(state, owner, reader.unknown(totals)) if unknown else {})


def _strange(state: State, owner: Owner | None, unknown: list[str]) -> dict[str, int]:
    """By GPU, how many units are held under ids that are not ours. The pod's annotation says which GPU. The GPU in an
    id is only the second choice: Aliyun's plugin lets kubelet choose any ids and gives the annotated GPU."""
    gpus = state.plans.planned(owner) if owner is not None else None
    if owner is not None and gpus:
        each = -(-len(unknown) // len(gpus))
        given_in = pod_gpus.counted_in(state.plans.pods[owner.uid], state.facts)
        return dict.fromkeys(gpus, units.converted(each, given_in, state.facts.unit))
    named = [id.partition(ALIYUN_SEPARATOR)[0] for id in unknown]
    if all(uuid in state.table.gpus for uuid in named):
        return {uuid: named.count(uuid) for uuid in sorted(set(named))}
    return dict.fromkeys(state.table.gpus, len(unknown))
