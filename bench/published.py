"""The published results of the packing benchmark (Weng et al., USENIX ATC 2023), and replays of the same.

Its folder has the traces, in which order pods come by seed, and the results: allocation, fragments, and fragments as a
part of what is free, at each percent of load.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from gpushare.obs.errors import UserError
from gpushare.sim.app import Plan, run
from gpushare.sim.reading import load
from gpushare.sim.results import Run
from gpushare.sim.trace import Trace

TRACES = ("default", "gpushare100", "gpuspec33", "multigpu50")
SEEDS = tuple(range(42, 52))
LOADS = range(131)
LOAD = 1.3
EXACT = {  # policies that decide nothing by chance, by our name, and how the results call them
    "dotprod": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
FILES = {"allo.csv": "allocated", "frag.csv": "fragmented", "frag_ratio.csv": "fragmented_of_free"}

Key = tuple[str, str, int]  # trace, policy, seed
Series = dict[str, tuple[float | None, ...]]  # by field of `Point`: a figure for each load that was seen


class Published:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        if not (self._folder / "published").is_dir():
            raise UserError(f"{folder} has no published results", "there is no folder published/", "DATA=FOLDER")
        self._series: dict[Key, Series] = {}
        names = {theirs: ours for ours, theirs in EXACT.items()}
        for name, figure in FILES.items():
            with (self._folder / "published" / name).open(newline="") as file:
                for row in csv.DictReader(file):
                    trace = row["workload"].removeprefix("openb_pod_list_")
                    key = trace, names.get(row["sc_policy"], ""), int(row["seed"])
                    self._series.setdefault(key, {})[figure] = tuple([_figure(row[str(at)]) for at in LOADS])

    def trace(self, name: str) -> Trace:
        traces = self._folder / "traces"
        return load.trace(str(traces / f"openb_pod_list_{name}.csv"), str(traces / "openb_node_list_gpu_node.csv"))

    def replays(self, name: str, trace: Trace, policy: str, seeds: Sequence[int], load: float = LOAD) -> list[Run]:
        arrivals = str(self._folder / "arrivals" / f"{name}.npz")
        return run(trace, Plan([policy], seeds, load, arrivals), lambda came, pods: None)

    def equal(self, trace: str, run: Run) -> int:
        """How many figures of a run are as published, to the last digit."""
        points, series = {point.load: point for point in run.points}, self._series[trace, run.policy, run.seed]
        return sum([getattr(points.get(at), name, None) == series[name][at] for name in series for at in LOADS])


def _figure(cell: str) -> float | None:
    return float(cell) if cell else None


def figures(load: float = LOAD) -> int:
    """How many there are up to this load."""
    return len(FILES) * (round(100 * load) + 1)
