"""The alerts, as a table. docs/metrics.md has a heading of the same name for each, which says more.

What an alert says is one sentence with what is wrong, and one with what to do. NVIDIA's names have no label `node`, so
they are joined by UUID with a metric of ours, whose labels the alert then has.
"""

from typing import Final, Literal, NamedTuple

Severity = Literal["critical", "warning", "info"]
GPU: Final = "{{ $labels.node }} GPU {{ $labels.gpu }}"
CONTAINER: Final = "{{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }})"
OVER_USE: Final = "gpushare_container_memory_used_bytes > 1.05 * gpushare_container_memory_granted_bytes"


class Rule(NamedTuple):
    """`lasts`: how long it must be true, in Prometheus' words; empty: it fires at once. `summary`: what is wrong.
    `todo`: what to do."""

    name: str
    expression: str
    lasts: str
    severity: Severity
    summary: str
    todo: str


EXTENDER: Final = (
    Rule(
        "ExtenderDown", 'absent(up{job="gpushare-extender"} == 1)', "2m", "critical",
        "No extender answers Prometheus.",
        "Look at its pod and its log: while it is down, no pod that asks for GPU memory is placed.",
    ),
    Rule(
        "SecondExtender", "increase(gpushare_second_extender_total[10m]) > 0", "", "critical",
        "Another extender binds pods in this cluster.",
        "Stop one of the two now: each counts for itself, so both give out the same memory.",
    ),
    Rule(
        "WatchStale", "gpushare_watch_age_seconds > 120", "1m", "critical",
        "{{ $labels.job }} at {{ $labels.instance }} has heard nothing about {{ $labels.of }} for "
        "{{ $value | humanizeDuration }}.",
        "Check that it reaches the API server, or, if it is the driver, that the driver answers; then restart its pod.",
    ),
    Rule(
        "BoundUnasked", "gpushare_unplaced_pods > 0", "5m", "warning",
        "{{ $value }} pods run, but nobody knows on which GPU.",
        "Find out who bound them without asking the extender, and create them again.",
    ),
    Rule(
        "PodWaitsLong", "gpushare_oldest_waiting_seconds > 1800", "5m", "warning",
        "A pod has waited for {{ $value | humanizeDuration }}: {{ $labels.code }}.",
        "Run `kubectl gpushare why` for it: it says what would make it fit.",
    ),
    Rule(
        "Fragmented",
        'gpushare_unusable_free_ratio{size="p90"} > 0.5 and on() sum(gpushare_waiting_pods) > 0', "30m", "info",
        "{{ $value | humanizePercentage }} of the free memory is in pieces too small for a usual pod, and pods wait.",
        "Let small pods share GPUs (policy binpack), or restart some of them one by one, so that they move together.",
    ),
)  # fmt: skip
GPUS: Final = (
    Rule(
        "OverUse", OVER_USE, "2m", "warning",
        f"{CONTAINER} uses {{{{ $value | humanize1024 }}}}B on {GPU}, more than it asked for.",
        "Raise its request to what it really needs, or limit it in its framework; its neighbours can run out.",
    ),
    Rule(
        "NeighbourAtRisk",
        "max by (UUID) (DCGM_FI_DEV_FB_FREE) * 1048576\n"
        "  < on (UUID) group_right () 0.03 * gpushare_gpu_memory_total_bytes\n"
        f"and on (UUID) {OVER_USE}", "1m", "critical",
        f"{GPU} has {{{{ $value | humanize1024 }}}}B left, and a container there uses more than it asked for.",
        "End or restart the container that OverUse names, before another one on this GPU gets no memory.",
    ),
    Rule(
        "LeftoverProcess",
        "gpushare_gpu_memory_unattributed_bytes > 1e9 and on (UUID) gpushare_gpu_shares == 0", "10m", "warning",
        f"Nobody was given {GPU}, but {{{{ $value | humanize1024 }}}}B of it are in use.",
        "Run `nvidia-smi` on the node and end the process that is left over.",
    ),
    Rule(
        "UnhealthyGpuWithPods",
        "gpushare_gpu_healthy == 0 and on (UUID) gpushare_gpu_shares > 0", "1m", "critical",
        f"{GPU} is unhealthy, and pods are on it.",
        "Read the reason with `kubectl inspect gpushare -d`, and delete those pods, so that they start elsewhere.",
    ),
    Rule(
        "UnhealthyGpu", "gpushare_gpu_healthy == 0", "10m", "warning",
        f"{GPU} is unhealthy and gets no pods.",
        "Read the reason with `kubectl inspect gpushare`; drain the node, and reset or replace the GPU.",
    ),
    Rule(
        "Xid", 'increase(gpushare_xid_errors_total{xid!~"13|31|43|45|68|109"}[5m]) > 0', "", "warning",
        f"The driver reported XID {{{{ $labels.xid }}}} on {GPU}.",
        "Look the number up in NVIDIA's list of XIDs; if it comes again, reset the GPU or have it replaced.",
    ),
    Rule(
        "RowRemapFailure", "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", "", "critical",
        "A memory row of GPU {{ $labels.gpu }} ({{ $labels.UUID }}) is broken and could not be replaced.",
        "Drain the node and have the GPU replaced.",
    ),
    Rule(
        "Hot",
        "max by (UUID) (DCGM_FI_DEV_GPU_TEMP) > on (UUID) group_right () gpushare_gpu_temperature_limit_celsius - 5",
        "5m", "warning",
        f"{GPU} has {{{{ $value }}}} °C and is about to slow down.",
        "Check fans, air flow and the room; until then put less work on this GPU.",
    ),
    Rule(
        "UseStale", "time() - gpushare_usage_timestamp_seconds > 60", "2m", "warning",
        "The driver of {{ $labels.node }} has not told for {{ $value | humanizeDuration }} what its GPUs do.",
        "Run `nvidia-smi` there: if it hangs too, drain the node and restart it.",
    ),
    Rule(
        "HeldIdle",
        "max_over_time(gpushare_container_memory_used_bytes[24h]) < 0.1 * gpushare_container_memory_granted_bytes",
        "1h", "info",
        f"{CONTAINER} has used less than a tenth of its memory on {GPU} for a day, or since it started.",
        "Ask its owner to ask for less, or to end it.",
    ),
)  # fmt: skip
GROUPS: Final = {"gpushare-extender": EXTENDER, "gpushare-gpus": GPUS}
ALL: Final = tuple(rule for rules in GROUPS.values() for rule in rules)
