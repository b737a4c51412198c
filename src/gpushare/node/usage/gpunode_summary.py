"""The row of `kubectl get gpunodes`: all GPUs of a node in a few words. Pure. Unknown is `-`, never 0."""

from collections.abc import Sequence
from typing import Final

from gpushare.core.facts.vitals import GpuAndContainers, Summary

UNKNOWN: Final = "-"
OK: Final = "ok"


def summary(gpus: Sequence[GpuAndContainers], *, silent: bool = False) -> Summary:
    """`silent`: the driver does not answer. A figure that is unknown for one GPU is unknown for all together; but the
    hottest GPU is the hottest known."""
    total = sum(gpu.total_mib for gpu in gpus)
    used, busy = _all([gpu.used_mib for gpu in gpus]), _all([gpu.utilization for gpu in gpus])
    hottest = [gpu.temperature for gpu in gpus if gpu.temperature is not None]
    return Summary(
        gpus=len(gpus),
        model=_model([gpu.model for gpu in gpus]),
        granted=_granted(gpus, total),
        used=f"{_gib(used)} GiB ({100 * used / total:.0f}%)" if used is not None and total else UNKNOWN,
        utilization=f"{busy / len(gpus):.0f}%" if busy is not None else UNKNOWN,
        temperature=f"{max(hottest)}C" if hottest else UNKNOWN,
        power=_power(_all([gpu.power_watts for gpu in gpus]), _all([gpu.power_limit_watts for gpu in gpus])),
        health=_health(gpus, silent),
    )


def _all(figures: Sequence[int | None]) -> int | None:
    """Their sum; None if one of them is unknown, or there are none."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None


def _model(models: Sequence[str]) -> str:
    different = list(dict.fromkeys(model for model in models if model))
    if not different:
        return UNKNOWN
    return different[0] if len(different) == 1 else f"{different[0]} +{len(different) - 1} more"


def _granted(gpus: Sequence[GpuAndContainers], total: int) -> str:
    granted = _all([gpu.granted_mib for gpu in gpus])
    return f"{UNKNOWN if granted is None else _gib(granted)}/{_gib(total)} GiB"


def _gib(mib: int) -> str:
    """Whole above 10 GiB, else with one digit, so that a small use is not 0."""
    gib = mib / 1024
    return f"{gib:.0f}" if gib >= 10 or mib % 1024 == 0 else f"{gib:.1f}"


def _power(watts: int | None, limit: int | None) -> str:
    if watts is None:
        return UNKNOWN
    return f"{watts}W" if limit is None else f"{watts}/{limit}W"


def _health(gpus: Sequence[GpuAndContainers], silent: bool) -> str:
    ill = sum(not gpu.healthy for gpu in gpus)
    if ill:
        return f"{ill} of {len(gpus)} unhealthy"
    return OK if gpus and not silent else "unknown"
