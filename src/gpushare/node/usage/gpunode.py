"""What the GPUNode of this node says, worked out from what its GPUs do; and whether that is worth a write.

Pure. The API server keeps every write of every node, so figures that changed a little are not written. They are
compared with what was written last, not with the sample before: a figure that creeps is written, too.
"""

import functools
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpushare.core.facts.objects import Condition
from gpushare.core.facts.vitals import OVER_USE, SAMPLED, ContainerVitals, FullStatus, GpuAndContainers
from gpushare.node.usage import gpunode_summary
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Key, OverUse

MIB: Final = 1 << 20
UTILIZATION_POINTS: Final = 10
MEMORY_PART: Final = 0.01  # of the GPU
DEGREES: Final = 3
POWER_PART: Final = 0.05  # of its limit
MOST_NAMED: Final = 10  # containers in one sentence
MOST_CONTAINERS: Final = 1024  # of a node; with the longest names half a MiB, and an API server takes 1.5

ANSWERED: Final = ("DriverAnswered", "the driver answered")
SILENT: Final = "DriverSilent"
NO_OVER_USE: Final = ("WithinRequests", "no container uses more GPU memory than it asked for")
USE_UNKNOWN: Final = ("UseUnknown", "what containers use is unknown")
TOO_MUCH: Final = "AboveRequests"


def status(usage: Usage, over_uses: Sequence[OverUse], sample_seconds: float) -> FullStatus:
    """Its conditions have no times yet: `dated` adds them."""
    over = {one.key for one in over_uses}
    most = max(MOST_CONTAINERS // max(len(usage.gpus), 1), 1)
    gpus = tuple(_gpu(gpu, over, most) for gpu in usage.gpus)
    return FullStatus(
        sampled_at=timestamp(usage.sampled_at) if usage.sampled_at is not None else "",
        sample_seconds=sample_seconds,
        driver=usage.driver,
        containers_unknown=usage.containers_unknown,
        gpus=gpus,
        conditions=(_sampled(usage), _over_use(usage, over_uses)),
        summary=gpunode_summary.summary(gpus, silent=bool(usage.failure)),
    )


def dated(after: FullStatus, before: FullStatus | None, now: float) -> FullStatus:
    """With the time at which each condition became what it is. `before`: what was written last."""
    known = {one.type: one for one in (before.conditions if before is not None else None) or ()}

    def since(one: Condition) -> str:
        old = known.get(one.type)
        return old.last_transition_time or timestamp(now) if old and old.status == one.status else timestamp(now)

    conditions = tuple(
        msgspec.structs.replace(one, last_transition_time=since(one)) for one in after.conditions or ()
    )  # fmt: skip
    return msgspec.structs.replace(after, conditions=conditions)


def changed_enough(before: FullStatus | None, after: FullStatus) -> bool:
    """Whether it should be written now. `before`: what was written last; None: nothing."""
    if before is None or _fixed(before) != _fixed(after):
        return True
    old, new = before.gpus or (), after.gpus or ()
    return any(_gpu_changed(*pair) for pair in zip(old, new, strict=True))


def written(after: FullStatus) -> dict[str, Any]:
    """As it is sent. What is unknown is left out."""
    made: dict[str, Any] = _plain(after)
    return made


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _gpu(gpu: GpuUse, over: Collection[Key], most: int) -> GpuAndContainers:
    """`most`: so many containers, and so many pods that use too much, are named; `shares` counts all."""
    sample = gpu.sample
    known = None
    if sample is not None and gpu.unknown_processes is not None:
        known = sum(len(container.pids or ()) for container in gpu.containers)
    return GpuAndContainers(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        healthy=gpu.healthy,
        why=gpu.why,
        shares=gpu.shares,
        total_mib=gpu.total // MIB,
        granted_mib=None if gpu.granted is None else gpu.granted // MIB,
        used_mib=_rounded(sample.memory_used, MIB) if sample else None,
        unattributed_mib=_rounded(gpu.unattributed, MIB) if sample else None,
        utilization=sample.gpu_util if sample else None,
        temperature=sample.temperature if sample else None,
        temperature_limit=sample.temperature_limit if sample else None,
        power_watts=_rounded(sample.power, 1000) if sample else None,
        power_limit_watts=_rounded(sample.power_limit, 1000) if sample else None,
        known_processes=known,
        unknown_processes=gpu.unknown_processes if sample else None,
        over_users=tuple(sorted({key.pod_uid for key in over if key.uuid == gpu.uuid})[:most]),
        containers=tuple(
            _container(one, is_over, known=sample is not None) for is_over, one in _named(gpu, over, most)
        ),
    )


def _named(gpu: GpuUse, over: Collection[Key], most: int) -> list[tuple[bool, ContainerUse]]:
    """Each with whether it uses too much. If there are too many, these come first."""
    found = [(Key(one.pod_uid, one.container, gpu.uuid) in over, one) for one in gpu.containers]
    return found if len(found) <= most else sorted(found, key=lambda pair: not pair[0])[:most]


def _container(use: ContainerUse, over_use: bool, *, known: bool) -> ContainerVitals:
    return ContainerVitals(
        namespace=use.namespace,
        pod=use.pod,
        uid=use.pod_uid,
        container=use.container,
        granted_mib=None if use.granted is None else use.granted // MIB,
        used_mib=_rounded(use.used, MIB) if known else None,
        sm_percent=round(use.sm * 100) if known and use.sm is not None else None,
        over_use=over_use,
    )


def _rounded(amount: int | None, unit: int) -> int | None:
    return None if amount is None else round(amount / unit)


def _sampled(usage: Usage) -> Condition:
    if usage.failure:
        return Condition(SAMPLED, "False", SILENT, usage.failure)
    return Condition(SAMPLED, "True", *ANSWERED)


def _over_use(usage: Usage, over_uses: Sequence[OverUse]) -> Condition:
    if not over_uses:
        unknown = usage.failure or usage.containers_unknown
        return Condition(OVER_USE, *(("Unknown", *USE_UNKNOWN) if unknown else ("False", *NO_OVER_USE)))
    found = sorted((one.namespace, one.pod, one.key.container, one.gpu) for one in over_uses)
    named = [f"{namespace}/{pod} ({container}, GPU {gpu})" for namespace, pod, container, gpu in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        named.append(f"{len(found) - MOST_NAMED} more")
    # Without amounts: they change all the time, and each change would be a write.
    return Condition(OVER_USE, "True", TOO_MUCH, f"more GPU memory than asked for is used by {', '.join(named)}")


def _fixed(of: FullStatus) -> object:
    """What is written whenever it changes at all. Of conditions it leaves out times, and of a silent driver the words:
    they count the seconds."""
    conditions = [
        (one.type, one.status, one.reason, "" if one.type == SAMPLED else one.message) for one in of.conditions or ()
    ]
    gpus = [
        (gpu.index, gpu.uuid, gpu.model, gpu.healthy, gpu.why, gpu.shares, gpu.total_mib, gpu.granted_mib,
         gpu.temperature_limit, gpu.power_limit_watts, gpu.known_processes, gpu.unknown_processes,
         gpu.over_users, [(one.uid, one.container, one.granted_mib, one.over_use) for one in gpu.containers])
        for gpu in of.gpus or ()
    ]  # fmt: skip
    return of.sample_seconds, of.driver, of.containers_unknown, conditions, gpus


def _gpu_changed(before: GpuAndContainers, after: GpuAndContainers) -> bool:
    memory = max(after.total_mib * MEMORY_PART, 1)
    power = max((after.power_limit_watts or 0) * POWER_PART, 1)
    figures = [
        (before.used_mib, after.used_mib, memory),
        (before.unattributed_mib, after.unattributed_mib, memory),
        (before.utilization, after.utilization, UTILIZATION_POINTS),
        (before.temperature, after.temperature, DEGREES),
        (before.power_watts, after.power_watts, power),
    ]
    for old, new in zip(before.containers, after.containers, strict=True):
        figures += [(old.used_mib, new.used_mib, memory), (old.sm_percent, new.sm_percent, UTILIZATION_POINTS)]
    return any(_differs(*figure) for figure in figures)


def _differs(before: int | None, after: int | None, enough: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) >= enough


def _plain(value: Any) -> Any:
    """Without what is unknown or empty, but with every 0 and false: people and their scripts read it."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, msgspec.Struct):
        made = {key: _plain(getattr(value, name)) for name, key in _names(type(value))}
        return {key: one for key, one in made.items() if one is not None}
    return None if value == "" else value


@functools.cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Of its fields, in Python and in JSON."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
