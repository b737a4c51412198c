"""For programs: JSON with all that was measured, CSV with the points. Pure."""

from collections.abc import Sequence

import msgspec

from gpushare.sim.results import Run
from gpushare.sim.trace import Trace

COLUMNS = ("policy", "seed", "load", "allocated", "fragmented", "fragmented_of_free")


def json(trace: Trace, runs: Sequence[Run]) -> str:
    about = {"version": 1, "nodes": len(trace.nodes), "gpus": trace.gpus, "runs": runs}
    return msgspec.json.format(msgspec.json.encode(about), indent=1).decode() + "\n"


def csv(runs: Sequence[Run]) -> str:
    """A row for each load of each run; with departures `load` is percent of the time."""
    lines = [",".join(COLUMNS)]
    for run in runs:
        for point in run.points:
            figures = f"{point.allocated},{point.fragmented},{point.fragmented_of_free}"
            lines.append(f"{run.policy},{run.seed},{point.load},{figures}")
    return "\n".join(lines) + "\n"
