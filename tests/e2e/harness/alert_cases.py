"""When each alert fires and when it does not: a table, and the same as a file for `promtool test rules`.

Series are written as promtool wants them: a value for each minute, `5x10` is eleven times 5. What fires has to be true
from the first minute on, so that it can also be checked that it does not fire a minute too early.
"""

from typing import Any, NamedTuple

import yaml

from tools import render_monitoring
from tools.monitoring import rules

GIB = 1 << 30
GPU = 'node="a",gpu="1",UUID="GPU-1"'
OTHER = 'node="a",gpu="2",UUID="GPU-2"'
LABELS = {"node": "a", "gpu": "1", "UUID": "GPU-1"}
DCGM = 'gpu="1",UUID="GPU-1",Hostname="a",modelName="T4"'
SHARE = f'{GPU},namespace="ml",pod="llm",container="main",pod_uid="u1"'
OF_SHARE = {**LABELS, "namespace": "ml", "pod": "llm", "container": "main", "pod_uid": "u1"}
USED, GRANTED = "gpushare_container_memory_used_bytes", "gpushare_container_memory_granted_bytes"
Series = dict[str, str]


class Fires(NamedTuple):
    """`at`: when it is looked at, in minutes; by default once it has lasted. `says`: its summary."""

    alert: str
    series: Series
    labels: dict[str, str]
    says: str
    at: int | None = None


class Silent(NamedTuple):
    """Looked at long after it could have fired."""

    alert: str
    why: str
    series: Series


def use(used: int, granted: int, share: str = SHARE) -> Series:
    return {f"{USED}{{{share}}}": f"{used}x200", f"{GRANTED}{{{share}}}": f"{granted}x200"}


def gpu(labels: str = GPU, **values: float) -> Series:
    return {f"gpushare_gpu_{name}{{{labels}}}": f"{value}x200" for name, value in values.items()}


def dcgm(**values: float) -> Series:
    return {f"DCGM_FI_DEV_{name}{{{DCGM}}}": f"{value}x200" for name, value in values.items()}


UP = 'up{job="gpushare-extender",instance="10.0.0.1:12345"}'
WATCH = 'gpushare_watch_age_seconds{job="gpushare-extender",instance="10.0.0.1:12345",of="pods"}'
WAIT = 'gpushare_oldest_waiting_seconds{code="NoSingleGpu"}'
PIECES, WAITING = 'gpushare_unusable_free_ratio{size="p90"}', 'gpushare_waiting_pods{code="NoSingleGpu"}'
SAMPLED = 'gpushare_usage_timestamp_seconds{node="a"}'
REMAP = f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{DCGM}}}"
XID = f"gpushare_xid_errors_total{{{GPU},xid="
JOB = {"job": "gpushare-extender", "instance": "10.0.0.1:12345"}

FIRES = (
    Fires("ExtenderDown", {UP: "0x10"}, {}, "No extender answers Prometheus."),
    Fires("SecondExtender", {"gpushare_second_extender_total": "0 0 1x10"}, {},
          "Another extender binds pods in this cluster.", at=4),
    Fires("WatchStale", {WATCH: "121x10"}, {**JOB, "of": "pods"},
          "gpushare-extender at 10.0.0.1:12345 has heard nothing about pods for 2m 1s."),
    Fires("BoundUnasked", {"gpushare_unplaced_pods": "2x10"}, {}, "2 pods run, but nobody knows on which GPU."),
    Fires("PodWaitsLong", {WAIT: "1801x10"}, {"code": "NoSingleGpu"}, "A pod has waited for 30m 1s: NoSingleGpu."),
    Fires("Fragmented", {PIECES: "0.6x40", WAITING: "1x40"}, {"size": "p90"},
          "60% of the free memory is in pieces too small for a usual pod, and pods wait."),
    Fires("OverUse", use(9 * GIB, 8 * GIB), OF_SHARE,
          "ml/llm (main) uses 9GiB on a GPU 1, more than it asked for."),
    Fires("NeighbourAtRisk", use(9 * GIB, 8 * GIB) | gpu(memory_total_bytes=100 * GIB) | dcgm(FB_FREE=2048), LABELS,
          "a GPU 1 has 2GiB left, and a container there uses more than it asked for."),
    Fires("LeftoverProcess", gpu(memory_unattributed_bytes=2 * GIB, shares=0), LABELS,
          "Nobody was given a GPU 1, but 2GiB of it are in use."),
    Fires("UnhealthyGpuWithPods", gpu(healthy=0, shares=1), LABELS, "a GPU 1 is unhealthy, and pods are on it."),
    Fires("UnhealthyGpu", gpu(healthy=0), LABELS, "a GPU 1 is unhealthy and gets no pods."),
    Fires("Xid", {f'{XID}"79"}}': "0 0 1x10"}, {**LABELS, "xid": "79"}, "The driver reported XID 79 on a GPU 1.", at=4),
    Fires("RowRemapFailure", {REMAP: "1x10"}, {"gpu": "1", "UUID": "GPU-1", "Hostname": "a", "modelName": "T4"},
          "A memory row of GPU 1 (GPU-1) is broken and could not be replaced."),
    Fires("Hot", gpu(temperature_limit_celsius=90) | dcgm(GPU_TEMP=86), LABELS,
          "a GPU 1 has 86 °C and is about to slow down."),
    Fires("UseStale", {SAMPLED: "-61x10"}, {"node": "a"},
          "The driver of a has not told for 3m 1s what its GPUs do."),
    Fires("HeldIdle", use(GIB // 2, 8 * GIB), OF_SHARE,
          "ml/llm (main) has used less than a tenth of its memory on a GPU 1 for a day, or since it started."),
)  # fmt: skip
SILENT = (
    Silent("ExtenderDown", "one of two answers", {UP: "1x200", UP.replace("10.0.0.1", "10.0.0.2"): "0x200"}),
    Silent("SecondExtender", "nothing was counted lately", {"gpushare_second_extender_total": "3x200"}),
    Silent("WatchStale", "it is not that old", {WATCH: "120x200"}),
    Silent("BoundUnasked", "none is", {"gpushare_unplaced_pods": "0x200"}),
    Silent("PodWaitsLong", "half an hour is not long", {WAIT: "1800x200"}),
    Silent("Fragmented", "nobody waits", {PIECES: "0.9x200", WAITING: "0x200"}),
    Silent("Fragmented", "pods wait for another reason", {PIECES: "0.5x200", WAITING: "5x200"}),
    Silent("OverUse", "5 % are tolerated", use(105, 100)),
    Silent("OverUse", "what it uses is unknown", {f"{GRANTED}{{{SHARE}}}": "100x200"}),
    Silent("NeighbourAtRisk", "enough is free",
           use(9 * GIB, 8 * GIB) | gpu(memory_total_bytes=100 * GIB) | dcgm(FB_FREE=4096)),
    Silent("NeighbourAtRisk", "a full GPU is fine while all keep to what they asked for",
           use(8 * GIB, 8 * GIB) | gpu(memory_total_bytes=100 * GIB) | dcgm(FB_FREE=1)),
    Silent("NeighbourAtRisk", "the over-use is on another GPU",
           use(9 * GIB, 8 * GIB, SHARE.replace("GPU-1", "GPU-2")) | gpu(memory_total_bytes=100 * GIB)
           | dcgm(FB_FREE=1)),
    Silent("LeftoverProcess", "somebody was given the GPU", gpu(memory_unattributed_bytes=2 * GIB, shares=1)),
    Silent("LeftoverProcess", "the driver needs that much", gpu(memory_unattributed_bytes=10**9, shares=0)),
    Silent("UnhealthyGpuWithPods", "nobody is on it", gpu(healthy=0, shares=0) | gpu(OTHER, healthy=1, shares=1)),
    Silent("UnhealthyGpu", "it is healthy", gpu(healthy=1)),
    Silent("Xid", "the program was wrong, not the GPU", {f'{XID}"31"}}': "0+1x200"}),
    Silent("Xid", "that was long ago", {f'{XID}"79"}}': "1x200"}),
    Silent("RowRemapFailure", "all could be replaced", {REMAP: "0x200"}),
    Silent("Hot", "its limit is far", gpu(temperature_limit_celsius=90) | dcgm(GPU_TEMP=85)),
    Silent("Hot", "its limit is unknown", dcgm(GPU_TEMP=99)),
    Silent("UseStale", "the driver answers", {SAMPLED: "0+60x200"}),
    Silent("HeldIdle", "it needed more an hour ago",
           {f"{USED}{{{SHARE}}}": "8x80 0x120", f"{GRANTED}{{{SHARE}}}": "10x200"}),
    Silent("HeldIdle", "what it uses is unknown", {f"{GRANTED}{{{SHARE}}}": "100x200"}),
)  # fmt: skip
LATE = 180  # minutes


def written(rule_file: str) -> str:
    """All cases, as promtool reads them."""
    tests = [_fires(case) for case in FIRES] + [_silent(case) for case in SILENT]
    return yaml.safe_dump({"rule_files": [rule_file], "evaluation_interval": "1m", "tests": tests}, allow_unicode=True)


def _fires(case: Fires) -> dict[str, Any]:
    (rule,) = (rule for rule in rules.ALL if rule.name == case.alert)
    lasts = _minutes(rule.lasts)
    labels = {"severity": rule.severity, "app": "gpushare", **case.labels}
    annotations = {
        "summary": case.says,
        "description": rule.todo,
        "runbook_url": f"{render_monitoring.RUNBOOK}#{rule.name.lower()}",
    }
    looks = [_look(case.at or lasts, rule.name, [{"exp_labels": labels, "exp_annotations": annotations}])]
    if lasts:
        looks.append(_look(lasts - 1, rule.name, []))
    return _test(case.alert, case.series, looks)


def _silent(case: Silent) -> dict[str, Any]:
    return _test(f"{case.alert}: {case.why}", case.series, [_look(LATE, case.alert, [])])


def _test(name: str, series: Series, looks: list[dict[str, Any]]) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"name": name, "interval": "1m", "input_series": given, "alert_rule_test": looks}


def _look(minute: int, alert: str, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}


def _minutes(lasts: str) -> int:
    return int(lasts[:-1]) * {"m": 1, "h": 60}[lasts[-1]] if lasts else 0
