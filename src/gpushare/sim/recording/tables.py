"""A recording as two CSV tables, with the columns that `sim.reading.plain` reads."""

import csv
import io
from collections.abc import Iterable, Sequence

from gpushare.obs.errors import UserError
from gpushare.sim.reading import plain
from gpushare.sim.trace import Node, Pod


def of_nodes(nodes: Iterable[Node]) -> str:
    """A UserError if a model has a bar in its name: the table cannot say it."""
    rows: list[Sequence[object]] = []
    for node in nodes:
        sizes, models = [str(gpu.memory_mib) for gpu in node.gpus], [gpu.model for gpu in node.gpus]
        for model in models:
            if "|" in model:
                what = f"{node.name} has GPUs of the model {model:.80}"
                raise UserError(what, "in the table bars are between models", "gpushare snapshot -o json")
        if len(set(models)) == 1:
            models = models[:1]
        rows.append((node.name, node.cpu_milli, node.memory_mib, "|".join(sizes), "|".join(models)))
    return _written(plain.NODE_COLUMNS, rows)


def of_pods(pods: Iterable[Pod]) -> str:
    return _written(
        (*plain.POD_COLUMNS, plain.MODELS, *plain.TIME_COLUMNS),
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
