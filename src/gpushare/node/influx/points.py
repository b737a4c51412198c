"""What is written: the measurements of KETI's collector, with numbers as numbers and tags that keep points apart.

Pure. KETI's scheduler reads the columns of `SELECT last(*)` by their position, and InfluxDB sorts them by name. So
`multimetric` has exactly KETI's fields, and a field may be added to `gpumetric` only if it sorts after `temperature`.
Two points with the same measurement, tags and second are one point, the last one: that is what the tags are for.
"""

from typing import Final

from gpushare.node.influx.line import Point, Value
from gpushare.node.influx.node_figures import NodeFigures
from gpushare.node.usage.model import GpuUse, Usage

DATABASE: Final = "metric"
NODE, NODE_AND_MORE, GPU, PROCESS = "multimetric", "nodemetric", "gpumetric", "gpumap"


def points(usage: Usage, node: NodeFigures, at: int, *, with_gpus: bool = True) -> list[Point]:
    """`at`: seconds since 1970."""
    made = _node(usage, node, at)
    for gpu in usage.gpus if with_gpus else ():
        if gpu.sample is not None:
            made.append(Point(GPU, {"UUID": gpu.uuid, "node": usage.node}, _gpu(gpu), at))
            made += _processes(usage.node, gpu, at)
    return made


def _node(usage: Usage, figures: NodeFigures, at: int) -> list[Point]:
    tags = {"node": usage.node}
    fields: dict[str, Value] = {
        "Count": len(usage.gpus),
        "NodeCPU": figures.cpu_milli,
        "NodeMemory": figures.memory_used,
        "NodeName": usage.node,
        "uuid": f"[{' '.join(gpu.uuid for gpu in usage.gpus)}]",  # as Go prints a list
    }
    more: dict[str, Value] = {
        "NodeNetworkRX": figures.received,
        "NodeNetworkTX": figures.sent,
        "NodeStorage": figures.storage_used,
    }
    return [Point(NODE, tags, fields, at), Point(NODE_AND_MORE, tags, fields | more, at)]


def _gpu(gpu: GpuUse) -> dict[str, Value]:
    sample = gpu.sample
    assert sample is not None
    return {
        "GPUName": gpu.model,
        "Index": gpu.index,
        "Power": sample.power,  # milliwatts, as KETI's
        "memory(free)": sample.memory_free,
        "memory(total)": sample.memory_total,
        "memory(used)": sample.memory_used,
        "temperature": sample.temperature,
        "utilization": sample.gpu_util,
    }


def _processes(node: str, gpu: GpuUse, at: int) -> list[Point]:
    processes = (gpu.sample.processes if gpu.sample is not None else None) or ()
    owners = {pid: use for use in gpu.containers for pid in use.pids or ()}
    made = []
    for number, process in enumerate(processes, 1):
        tags = {"UUID": gpu.uuid, "node": node, "pid": str(process.pid)}
        owner = owners.get(process.pid)
        if owner is not None:
            tags |= {"namespace": owner.namespace, "pod": owner.pod, "container": owner.container}
        fields: dict[str, Value] = {
            "gpu_mps_count": len(processes),
            "gpu_mps_index": number,
            "gpu_mps_memory": process.memory,
            "gpu_mps_pid": process.pid,
            "gpu_mps_sm": process.sm,
        }
        made.append(Point(PROCESS, tags, fields, at))
    return made
