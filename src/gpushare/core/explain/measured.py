"""What GPUs and containers use, as a node measured it, beside what they were given. For people and for programs.

Pure. Callers pass only figures that are still fresh (`core.facts.vitals.is_fresh`): older ones are unknown, and unknown
is left out.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from gpushare.core.facts.model import NodeFacts
from gpushare.core.facts.vitals import ContainerVitals, GpuAndContainers, GpuVitals

G = TypeVar("G", bound=GpuVitals)


class Use(msgspec.Struct, frozen=True):
    """What a pod uses of a GPU, or of several. In MiB."""

    used: int | None  # None: unknown, because it is of one of its containers
    over: int  # how much its containers use above what each was given


def by_index(gpus: Iterable[G], facts: NodeFacts) -> dict[int, G]:
    """The measured GPUs of a node by its own index. They are the same if their UUIDs are; a node of Aliyun's plugin
    tells none, and there the index has to do."""
    given = list(gpus)
    by_uuid = {gpu.uuid: gpu for gpu in given if gpu.uuid}
    of_index = {gpu.index: gpu for gpu in given}
    found = {gpu.index: by_uuid.get(gpu.uuid) if gpu.uuid else of_index.get(gpu.index) for gpu in facts.gpus}
    return {index: gpu for index, gpu in found.items() if gpu is not None}


def over(container: ContainerVitals) -> int:
    """MiB that it uses above what it was given."""
    if container.used_mib is None or not container.granted_mib:
        return 0
    return max(container.used_mib - container.granted_mib, 0)


def use(containers: Iterable[ContainerVitals]) -> Use | None:
    """What these use together; None if there are none."""
    known = list(containers)
    if not known:
        return None
    amounts = [one.used_mib for one in known]
    used = sum(amount for amount in amounts if amount is not None) if None not in amounts else None
    return Use(used, sum(map(over, known)))


def device_keys(gpu: GpuVitals, sampled_at: str) -> dict[str, object]:
    """Keys of a GPU in the JSON of `/inspect`; what is unknown has none."""
    figures = {
        "usedMiB": gpu.used_mib,
        "utilization": gpu.utilization,
        "temperature": gpu.temperature,
        "powerWatts": gpu.power_watts,
    }
    known: dict[str, object] = {key: value for key, value in figures.items() if value is not None}
    return {**known, "sampledAt": sampled_at} if known else {}


def pod_keys(gpu: GpuVitals | None, uid: str) -> dict[str, object]:
    """Keys of a pod on a GPU there."""
    if not isinstance(gpu, GpuAndContainers):
        return {}
    found = use(one for one in gpu.containers if one.uid == uid)
    if found is None or found.used is None:
        return {}
    return {"usedMiB": found.used, **({"overMiB": found.over} if found.over else {})}
