"""The four boards, as tables: what each panel asks Prometheus, and how its lines are called.

What is unknown has no series, so a panel shows "No data" for it; nothing here turns that into 0. NVIDIA's names have no
label `node`: `per_gpu` joins them by UUID with a metric of ours, whoever exports them.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["timeseries", "stat", "table", "bargauge"]
Variable = Literal["node", "namespace"]
GPU: Final = "{{node}} GPU {{gpu}}"
CONTAINER: Final = "{{namespace}}/{{pod}} {{container}}"
ON_GPU: Final = "{{pod}} {{container}}: " + GPU
MIB: Final = 1 << 20


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    """`about`: how to read it. `unit`: in Grafana's words. `width`: of 24."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    kind: Kind = "timeseries"
    width: int = 12
    stacked: bool = False


class Board(NamedTuple):
    file: str
    title: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


def per_gpu(name: str) -> str:
    """A metric with NVIDIA's name, for the chosen nodes, with our labels. NVIDIA's exporter may have several series for
    a GPU, one for each pod, all with the same value: `max` makes them one again."""
    return f"max by (UUID) ({name}) * on (UUID) group_right () ({gpu('healthy')} >= bool 0)"


def gpu(name: str) -> str:
    """A metric of ours about GPUs, for the chosen nodes."""
    return f'gpushare_gpu_{name}{{node=~"$node"}}'


def container(name: str) -> str:
    """A metric of ours about containers, for the chosen nodes and namespaces."""
    return f'gpushare_container_{name}{{node=~"$node", namespace=~"$namespace"}}'


def peak(name: str = "memory_used_bytes") -> str:
    return f"max_over_time({container(name)}[$__range])"


def stat(title: str, unit: str, expression: str, about: str = "") -> Panel:
    return Panel(title, unit, (Query(expression, ""),), about, "stat", width=4)


def line(title: str, unit: str, expression: str, legend: str, about: str = "", *, stacked: bool = False) -> Panel:
    return Panel(title, unit, (Query(expression, legend),), about, stacked=stacked)


# A reason for which nobody waits has no series. The extender counts the other figure at the same time: if that one is
# there, nobody waits.
WAITING: Final = "sum(gpushare_waiting_pods) or 0 * sum(gpushare_unplaced_pods)"
USED: Final = f"{per_gpu('DCGM_FI_DEV_FB_USED')} * {MIB}"
GRANTED: Final = container("memory_granted_bytes")
IDLE: Final = f"{GRANTED} - {peak()}"
OVER: Final = f"{container('memory_used_bytes')} - {GRANTED} > 0"
ABOUT_IDLE: Final = "Granted, minus the most that was used in the time shown: requests can be smaller by this."
ABOUT_OVER: Final = "Used above what was asked for. The others on that GPU can run out of memory."
ABOUT_UNATTRIBUTED: Final = "In use, but by no container that was given this GPU. A little of it is the driver's own."

CLUSTER: Final = Board("cluster", "gpushare / Cluster", ("node", "namespace"), (
    stat("GPUs", "none", f"count({gpu('healthy')})"),
    stat("Unhealthy GPUs", "none", f"sum(1 - {gpu('healthy')})"),
    stat("Granted", "percentunit",
         f"sum({gpu('memory_granted_bytes')}) / "
         f"sum({gpu('memory_total_bytes')} and on (UUID) {gpu('memory_granted_bytes')})",
         "Without GPUs that are sold by count: nobody knows how much of them is given out."),
    stat("Used", "percentunit", f"sum({USED}) / sum({gpu('memory_total_bytes')})"),
    stat("Waiting pods", "none", WAITING),
    stat("Containers above their request", "none",
         f"sum({container('memory_used_bytes')} > bool 1.05 * {GRANTED})"),
    Panel("GPU memory", "bytes", (
        Query(f"sum({gpu('memory_total_bytes')})", "total"),
        Query(f"sum({gpu('memory_granted_bytes')})", "granted"),
        Query(f"sum({USED})", "used"),
    ), "Granted far above used: pods ask for too much. Used above granted: over-use, or unattributed memory."),
    line("Waiting pods, by reason", "none", "sum by (code) (gpushare_waiting_pods)", "{{code}}", stacked=True),
    Panel("Held idle, by namespace", "bytes",
          (Query(f"topk(10, sum by (namespace) ({IDLE}))", "{{namespace}}"),), ABOUT_IDLE, "bargauge"),
    line("Over-use", "bytes", OVER, ON_GPU, ABOUT_OVER),
    line("Granted, by node", "percentunit",
         f"sum by (node) ({gpu('memory_granted_bytes')}) / sum by (node) ({gpu('memory_total_bytes')})", "{{node}}"),
    line("Utilisation, mean of each node", "percent", f"avg by (node) ({per_gpu('DCGM_FI_DEV_GPU_UTIL')})", "{{node}}"),
    line("Unattributed memory", "bytes", gpu("memory_unattributed_bytes"), GPU, ABOUT_UNATTRIBUTED),
    line("Power, by node", "watt", f"sum by (node) ({per_gpu('DCGM_FI_DEV_POWER_USAGE')})", "{{node}}", stacked=True),
    Panel("Health", "none", (Query(gpu("healthy"), "healthy"),), "1: gets pods. 0: unhealthy.", "table"),
    line("Age of the figures", "s", 'time() - gpushare_usage_timestamp_seconds{node=~"$node"}', "{{node}}",
         "Seconds since the driver last answered. Figures that are too old have no series."),
))  # fmt: skip

GPUS: Final = Board("gpu", "gpushare / GPU", ("node", "namespace"), (
    Panel("Memory", "bytes", (
        Query(gpu("memory_total_bytes"), f"{GPU} total"),
        Query(gpu("memory_granted_bytes"), f"{GPU} granted"),
        Query(USED, f"{GPU} used"),
    ), "Used above granted: over-use, or unattributed memory."),
    line("Used, by container", "bytes", container("memory_used_bytes"), ON_GPU, stacked=True),
    line("Utilisation", "percent", per_gpu("DCGM_FI_DEV_GPU_UTIL"), GPU,
         "Part of the time in which anything ran; not how much of the GPU it used."),
    line("Computing, by container", "percentunit", container("sm_utilization_ratio"), ON_GPU, stacked=True),
    Panel("Temperature, and its limit", "celsius", (
        Query(per_gpu("DCGM_FI_DEV_GPU_TEMP"), GPU),
        Query(gpu("temperature_limit_celsius"), f"{GPU} limit"),
    ), "At its limit a GPU slows down. Each model has its own."),
    Panel("Power, and its limit", "watt", (
        Query(per_gpu("DCGM_FI_DEV_POWER_USAGE"), GPU),
        Query(gpu("power_limit_watts"), f"{GPU} limit"),
    )),
    line("Over-use", "bytes", OVER, ON_GPU, ABOUT_OVER),
    line("Unattributed memory", "bytes", gpu("memory_unattributed_bytes"), GPU, ABOUT_UNATTRIBUTED),
    line("Shares", "none", gpu("shares"), GPU, "Containers that were given this GPU or a part of it."),
    line("Health", "none", gpu("healthy"), GPU, "1: gets pods. 0: unhealthy."),
    line("XIDs", "none", 'increase(gpushare_xid_errors_total{node=~"$node"}[$__range]) > 0', f"{GPU} XID {{{{xid}}}}",
         "Errors that the driver reported, in the time shown."),
    line("Clock of the multiprocessors", "hertz", f"{per_gpu('DCGM_FI_DEV_SM_CLOCK')} * 1000000", GPU),
    Panel("Encoder, decoder, memory accesses", "percent", (
        Query(per_gpu("DCGM_FI_DEV_ENC_UTIL"), f"{GPU} encoder"),
        Query(per_gpu("DCGM_FI_DEV_DEC_UTIL"), f"{GPU} decoder"),
        Query(per_gpu("DCGM_FI_DEV_MEM_COPY_UTIL"), f"{GPU} memory"),
    )),
    Panel("Wear of the memory", "none", (
        Query(per_gpu("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"), f"{GPU} rows replaced after lost data"),
        Query(per_gpu("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"), f"{GPU} rows replaced in time"),
        Query(per_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE"), f"{GPU} row not replaced"),
    ), "GPUs without this protection have no series."),
))  # fmt: skip

NAMESPACES: Final = Board("namespace", "gpushare / Namespace", ("node", "namespace"), (
    stat("Asked for", "bytes", f"sum({GRANTED})"),
    stat("Used", "bytes", f"sum({container('memory_used_bytes')})"),
    stat("Peak", "bytes", f"sum({peak()})", "The most that each container used in the time shown, added up."),
    stat("Held idle", "bytes", f"sum({IDLE})", ABOUT_IDLE),
    stat("Containers with GPU memory", "none", f"count({GRANTED})"),
    stat("Containers above their request", "none",
         f"sum({container('memory_used_bytes')} > bool 1.05 * {GRANTED})"),
    Panel("Asked for and used, by pod", "bytes", (
        Query(f"sum by (namespace, pod) ({GRANTED})", "{{namespace}}/{{pod}} asked"),
        Query(f"sum by (namespace, pod) ({container('memory_used_bytes')})", "{{namespace}}/{{pod}} used"),
    )),
    line("Computing, by pod", "percentunit", f"sum by (namespace, pod) ({container('sm_utilization_ratio')})",
         "{{namespace}}/{{pod}}", "1 is one whole GPU."),
    Panel("What to ask for", "mbytes", (
        Query(f"{GRANTED} / {MIB}", "asked, MiB"),
        Query(f"{container('memory_used_bytes')} / {MIB}", "used, MiB"),
        Query(f"{peak()} / {MIB}", "peak, MiB"),
        Query(f"ceil({peak()} * 1.1 / {MIB})", "advice, MiB"),
    ), "The advice is the peak in the time shown and a tenth more. Choose a time that has seen the largest load.",
        "table", width=24),
    Panel("Held idle, by container", "bytes", (Query(f"topk(20, {IDLE})", CONTAINER),), ABOUT_IDLE, "bargauge"),
    line("Over-use", "bytes", OVER, ON_GPU, ABOUT_OVER),
    Panel("Held idle, by namespace", "bytes", (Query(f"sum by (namespace) ({IDLE})", "{{namespace}}"),), ABOUT_IDLE,
          "bargauge"),
    line("Granted, by namespace", "bytes", f"sum by (namespace) ({GRANTED})", "{{namespace}}", stacked=True),
))  # fmt: skip


def rate(name: str) -> str:
    return f"rate({name}[$__rate_interval])"


def quantile(part: str, name: str, by: str) -> str:
    return f"histogram_quantile({part}, sum by (le, {by}) ({rate(f'{name}_bucket')}))"


SCHEDULER: Final = Board("scheduler", "gpushare / Scheduler", (), (
    stat("Waiting pods", "none", WAITING),
    stat("Oldest wait", "s", "max(gpushare_oldest_waiting_seconds)"),
    stat("Pods on an unknown GPU", "none", "sum(gpushare_unplaced_pods)"),
    stat("Pods of another extender", "none", "sum(increase(gpushare_second_extender_total[$__range]))"),
    stat("GPUs kept for long-waiting pods", "none", "sum(gpushare_gpus_kept)"),
    stat("Oldest watch", "s", 'max(gpushare_watch_age_seconds{job="gpushare-extender"})'),
    line("Waiting pods, by reason", "none", "sum by (code) (gpushare_waiting_pods)", "{{code}}", stacked=True),
    line("Oldest wait, by reason", "s", "max by (code) (gpushare_oldest_waiting_seconds)", "{{code}}"),
    line("Pods that would still fit, by size", "none", "gpushare_fitting_pods", "{{size}}",
         "How many more pods of that size could be placed now."),
    line("Free memory that a pod of that size cannot use", "percentunit", "gpushare_unusable_free_ratio", "{{size}}",
         "0: all free memory can be used. 1: none of it, because it is in pieces."),
    Panel("Time to answer", "s", (
        Query(quantile("0.5", "gpushare_request_seconds", "verb"), "{{verb}} median"),
        Query(quantile("0.99", "gpushare_request_seconds", "verb"), "{{verb}} 99 %"),
    )),
    line("Requests", "reqps", f"sum by (verb) ({rate('gpushare_request_seconds_count')})", "{{verb}}"),
    line("Refusals", "cps", f"sum by (code) ({rate('gpushare_refusals_total')})", "{{code}}"),
    Panel("Bindings", "cps", (
        Query(f"sum({rate('gpushare_bound_total')})", "bound"),
        Query(f"sum({rate('gpushare_bind_conflicts_total')})", "refused: it does not fit any more"),
    )),
    line("Wake-ups", "cps", f"sum({rate('gpushare_wake_ups_total')})", "wake-ups",
         "Waiting pods that were touched, so that kube-scheduler asks again."),
    line("Assumed nodes", "cps", f"sum by (outcome) ({rate('gpushare_holds_total')})", "{{outcome}}",
         "Wrong: kube-scheduler bound the pod elsewhere, or not at all."),
    line("Age of each watch", "s", "gpushare_watch_age_seconds", "{{job}} {{instance}}: {{of}}"),
    line("Pods in the ledger", "none", "sum by (state) (gpushare_pods)", "{{state}}"),
    line("Events", "none", "sum by (job, outcome) (gpushare_events)", "{{job}} {{outcome}}"),
    line("Problems found on nodes", "none", "sum by (found) (gpushare_node_audit)", "{{found}}"),
))  # fmt: skip

ALL: Final = (CLUSTER, GPUS, NAMESPACES, SCHEDULER)
