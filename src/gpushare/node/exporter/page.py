"""The page that Prometheus reads on a node: what GPUs do, and for whom.

Pure. Written by hand, because a client library needs ten times as long. What is unknown has no series: it is never 0.
NVIDIA's names have one series for each GPU, with the labels of a pod only where one has the whole GPU: so sums over
GPUs are right. What containers use has names of our own. The names are a contract: boards and alerts are made of them.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from gpushare.gpu import health
from gpushare.node.exporter import dcgm
from gpushare.node.exporter.dcgm import Figure
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.node.usage.overuse import Key

HostnameLabel = Literal["Hostname", "hostname"]
KNOWN_XIDS: Final = tuple(sorted({*health.XID_NAMES, *health.OF_THE_APPLICATION}))
NO_XID: Final = "No Error"


class Wanted(NamedTuple):
    """What of NVIDIA's names is on the page. `driver_label`: whether all have the driver's version as a label."""

    figures: tuple[Figure, ...] = dcgm.FIGURES
    driver_label: bool = True
    hostname_label: HostnameLabel = "Hostname"


class Counted(NamedTuple):
    """What was counted since this process was started, and who uses too much now."""

    xids: Mapping[tuple[str, int], int] = {}  # by uuid and code
    last_xid: Mapping[str, int] = {}  # by uuid
    overuses: Mapping[Key, int] = {}  # bytes above what the container was given
    evictions: int = 0  # of pods, for over-use


NOTHING_COUNTED: Final = Counted()


def page(usage: Usage, counted: Counted = NOTHING_COUNTED, wanted: Wanted | None = None) -> str:
    """`wanted`: None if NVIDIA's names shall not be here, because its own exporter runs on this node."""
    lines: list[str] = []
    if wanted is not None:
        lines += _dcgm(usage, counted, wanted)
    lines += _gpus(usage)
    lines += _xids(usage, counted)
    lines += _containers(usage, counted)
    node = f'{{node="{escaped(usage.node)}"}}'
    if usage.sampled_at is not None:
        sampled = [f"{node} {usage.sampled_at:.3f}"]
        lines += _family(
            "gpushare_usage_timestamp_seconds", "gauge", "When the driver last told what GPUs do.", sampled
        )
    evictions = [f"{node} {counted.evictions}"]
    lines += _family("gpushare_overuse_evictions_total", "counter", "Pods evicted for over-use.", evictions)
    return "\n".join(lines) + "\n"


def escaped(value: str) -> str:
    """As the value of a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _family(name: str, kind: str, text: str, samples: list[str]) -> Iterator[str]:
    """The lines of one metric. `samples`: labels and value; nothing is written if there is none."""
    if samples:
        yield f"# HELP {name} " + text.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# TYPE {name} {kind}"
        for sample in samples:
            yield name + sample


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


# NVIDIA's names


def _dcgm(usage: Usage, counted: Counted, wanted: Wanted) -> Iterator[str]:
    labels = [(gpu, _dcgm_labels(gpu, usage, wanted)) for gpu in usage.gpus]
    for figure in wanted.figures:
        if figure.name == dcgm.XID:
            samples = [_last_xid(text, counted.last_xid.get(gpu.uuid, 0)) for gpu, text in labels]
        else:
            read = [(text, figure.of(gpu.sample)) for gpu, text in labels if gpu.sample is not None]
            samples = [f"{{{text}}} {_number(value)}" for text, value in read if value is not None]
        yield from _family(figure.name, figure.kind, figure.help, samples)


def _dcgm_labels(gpu: GpuUse, usage: Usage, wanted: Wanted) -> str:
    """In the order in which NVIDIA's exporter writes them."""
    labels = {
        "gpu": str(gpu.index), "UUID": gpu.uuid, "pci_bus_id": gpu.bus, "device": f"nvidia{gpu.index}",
        "modelName": gpu.model, wanted.hostname_label: usage.node,
    }  # fmt: skip
    if wanted.driver_label:
        labels[dcgm.DRIVER] = usage.driver
    owner = gpu.exclusive
    if owner is not None:
        labels |= {"container": owner.container, "namespace": owner.namespace, "pod": owner.pod}
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()])


def _last_xid(labels: str, xid: int) -> str:
    text = health.XID_NAMES.get(xid, "") if xid else NO_XID
    return f'{{{labels},err_code="{xid}",err_msg="{text}"}} {xid}'


# Our names


def _gpus(usage: Usage) -> Iterator[str]:
    labels = [_gpu_labels(usage.node, gpu) for gpu in usage.gpus]
    for name, text, values in (
        ("memory_total_bytes", "GPU memory that may be given out.", [gpu.total for gpu in usage.gpus]),
        ("memory_granted_bytes", "GPU memory that is given out.", [gpu.granted for gpu in usage.gpus]),
        ("memory_unattributed_bytes", "GPU memory in use by no container that was given this GPU.",
         [gpu.unattributed for gpu in usage.gpus]),
        ("shares", "Containers that were given this GPU or a part of it.", [gpu.shares for gpu in usage.gpus]),
        ("healthy", "1 if the GPU is healthy and gets new pods, else 0.", [int(gpu.healthy) for gpu in usage.gpus]),
        ("temperature_limit_celsius", "Above this temperature the GPU slows down.",
         [gpu.sample.temperature_limit if gpu.sample else None for gpu in usage.gpus]),
        ("power_limit_watts", "The GPU takes no more power than this.", [_power_limit(gpu) for gpu in usage.gpus]),
        ("slots_total", "MPS slots that can be given out.", [gpu.slots or None for gpu in usage.gpus]),
        ("slots_held", "MPS slots that pods hold.",
         [gpu.granted_slots if gpu.slots or gpu.granted_slots else None for gpu in usage.gpus]),
    ):  # fmt: skip
        pairs = zip(labels, values, strict=True)
        samples = [f"{{{of}}} {_number(value)}" for of, value in pairs if value is not None]
        yield from _family(f"gpushare_gpu_{name}", "gauge", text, samples)


def _power_limit(gpu: GpuUse) -> float | None:
    limit = gpu.sample.power_limit if gpu.sample is not None else None
    return None if limit is None else limit / 1000


def _gpu_labels(node: str, gpu: GpuUse) -> str:
    return f'node="{escaped(node)}",gpu="{gpu.index}",UUID="{escaped(gpu.uuid)}"'


def _xids(usage: Usage, counted: Counted) -> Iterator[str]:
    """Those that are known are there from the start: the increase to a first sample is not seen."""
    more: dict[str, set[int]] = {}
    for uuid, code in counted.xids:
        more.setdefault(uuid, set()).add(code)
    samples = [
        f'{{{labels},xid="{code}"}} {counted.xids.get((gpu.uuid, code), 0)}'
        for gpu in usage.gpus
        for labels in (_gpu_labels(usage.node, gpu),)
        for code in sorted(more.get(gpu.uuid, set()).union(KNOWN_XIDS))
    ]
    yield from _family("gpushare_xid_errors_total", "counter", "Errors (XID) that the driver reported.", samples)


def _containers(usage: Usage, counted: Counted) -> Iterator[str]:
    granted, used, ratio, overuse = list[str](), list[str](), list[str](), list[str]()
    for gpu in usage.gpus:
        of_gpu = _gpu_labels(usage.node, gpu)
        for use in gpu.containers:
            labels = f"{{{of_gpu},{_container_labels(use)}}}"
            if use.granted is not None:
                granted.append(f"{labels} {use.granted}")
            if use.used is not None:
                used.append(f"{labels} {use.used}")
                if above := counted.overuses.get(Key(use.pod_uid, use.container, gpu.uuid)):
                    overuse.append(f"{labels} {above}")
            if use.sm is not None:
                ratio.append(f"{labels} {_number(use.sm)}")
    for name, text, samples in (
        ("memory_granted_bytes", "GPU memory that the container was given.", granted),
        ("memory_used_bytes", "GPU memory that the container uses.", used),
        ("sm_utilization_ratio", "Part of the GPU's time in which the container computed, 0 to 1.", ratio),
        ("overuse_bytes", "GPU memory above what the container was given, after tolerance and grace.", overuse),
    ):
        yield from _family(f"gpushare_container_{name}", "gauge", text, samples)


def _container_labels(use: ContainerUse) -> str:
    return (
        f'namespace="{escaped(use.namespace)}",pod="{escaped(use.pod)}",container="{escaped(use.container)}",'
        f'pod_uid="{escaped(use.pod_uid)}"'
    )
