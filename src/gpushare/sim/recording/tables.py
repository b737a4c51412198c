"""A recording as two CSV tables, in the shape of `sim.trace`."""

import csv
import io
from collections.abc import Iterable, Sequence

from gpushare.obs.errors import UserError
from gpushare.sim.trace import Node, Pod

NODES = ("name", "cpu_milli", "memory_mib", "gpu_memory_mib", "model")
PODS = ("name", "cpu_milli", "memory_mib", "gpus", "gpu_memory_mib", "models", "arrival", "duration")


def of_nodes(nodes: Iterable[Node]) -> str:
    """A UserError if a node has GPUs of different models: the table has one model for each node. Nor can it say one
    with a bar in its name."""
    rows: list[Sequence[object]] = []
    for node in nodes:
        models = sorted({gpu.model for gpu in node.gpus})
        if len(models) > 1:
            what = f"{node.name} has GPUs of different models: {', '.join(models)}"
            raise UserError(what, "a row of the table has one model", "gpushare snapshot -o json")
        if "|" in "".join(models):
            what = f"{node.name} has GPUs of the model {models[0]:.80}"
            raise UserError(what, "in the table bars are between models", "gpushare snapshot -o json")
        sizes = "|".join([str(gpu.memory_mib) for gpu in node.gpus])
        rows.append((node.name, node.cpu_milli, node.memory_mib, sizes, *models))
    return _written(NODES, rows)


def of_pods(pods: Iterable[Pod]) -> str:
    return _written(
        PODS,
        [
            (
                pod.name,
                pod.cpu_milli,
                pod.memory_mib,
                pod.gpus,
                pod.gpu_memory_mib,
                "|".join(pod.models),
                f"{pod.arrival:.15g}",
                "" if pod.duration is None else f"{pod.duration:.15g}",
            )
            for pod in pods
        ],
    )


def _written(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
