"""The traces that Alibaba published (openb, of cluster-trace-gpu-v2023): nodes and pods out of CSV. Pure.

A GPU has 1000 thousandths. What a pod asks of one is its `gpu_milli`; 1000 is the whole GPU.
"""

from gpushare.sim.reading.rows import Row, rows
from gpushare.sim.trace import Gpu, Node, Pod

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIME_COLUMNS = ("creation_time", "deletion_time")
WHOLE = 1000
MOST_GPUS = 1024  # of one node


def nodes(file: str, text: str) -> list[tuple[str, Node]]:
    """With the place of each in the file."""
    return [(f"row {row.number}", _node(row)) for row in rows(file, text, NODE_COLUMNS)]


def pods(file: str, text: str) -> list[tuple[str, Pod]]:
    return [(f"row {row.number}", _pod(row)) for row in rows(file, text, POD_COLUMNS)]


def _node(row: Row) -> Node:
    gpus, model = row.needed("gpu"), row.cells["model"].strip()
    if gpus > MOST_GPUS:
        raise row.fault(f"gpu is {gpus}", f"a node has at most {MOST_GPUS} GPUs here")
    name, cpu, memory = row.name("sn"), row.needed("cpu_milli"), row.needed("memory_mib")
    return Node(name, cpu, memory, (Gpu(WHOLE, model),) * gpus)


def _pod(row: Row) -> Pod:
    gpus, each = row.needed("num_gpu"), row.needed("gpu_milli")
    if each > WHOLE or bool(gpus) != bool(each):
        why = f"num_gpu is {gpus} and gpu_milli is {each}"
        raise row.fault(why, "write 1 to 1000 thousandths of each GPU, or 0 and 0 for none")
    came, started, ended = row.seconds("creation_time"), row.seconds("scheduled_time"), row.seconds("deletion_time")
    began = started if started is not None else came
    if ended is not None and began is not None and ended < began:
        raise row.fault(
            f"it ends at {ended:.0f} and begins at {began:.0f}", "write a deletion_time after its beginning"
        )
    return Pod(
        row.name("name"),
        row.needed("cpu_milli"),
        row.needed("memory_mib"),
        gpus,
        0 if each == WHOLE else each,
        row.listed("gpu_spec"),
        came or 0.0,
        ended - began if ended is not None and began is not None else None,
    )
