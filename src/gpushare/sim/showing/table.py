"""For people: one row per policy, the mean of its seeds. Pure."""

from collections.abc import Sequence

from gpushare.sim.results import PART, WITHOUT, Run
from gpushare.sim.showing.means import Mean, by_policy
from gpushare.sim.trace import Trace

LOADS = (50, 70, 80, 90, 100)  # the last two that were reached, and the very last
GAP = "  "
MOST_NAMED = 10  # seeds


def written(trace: Trace, runs: Sequence[Run], seeds: Sequence[int]) -> str:
    policies = by_policy(runs)
    opening = f"{len(trace.nodes):,} nodes, {trace.gpus:,} GPUs, {round(policies[0].pods):,} pods came"
    opening += f"; {_seeds(seeds)}"
    timed = runs[0].over_time is not None
    first = _in_time(policies) if timed else _by_load(policies)
    title = "Pods that never ran, by what they ask" if timed else "Pods without a place, by what they ask"
    return f"{opening}\n\n{first}\n{title}\n{_rejected(policies)}"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > MOST_NAMED:
        return f"mean of {len(seeds)} seeds"
    return f"mean of seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"


def _by_load(policies: Sequence[Mean]) -> str:
    last = max([policy.points[-1].load for policy in policies])
    loads = [*[load for load in LOADS if load < last][-2:], last]
    header = ["POLICY", *[f"{load} %" for load in loads], "FRAGMENTS", "OF FREE", "CPU", "A POD"]
    rows = []
    for policy in policies:
        end = policy.points[-1]
        allocated = [f"{point.allocated:.2f}" if (point := policy.at(load)) is not None else "-" for load in loads]
        fragments = [f"{end.fragmented:.2f}", f"{end.fragmented_of_free:.1f}"]
        rows.append([policy.policy, *allocated, *fragments, *_cost(policy)])
    return "GPUs given out in % of all, by what was asked so far\n" + _table([header, *rows])


def _in_time(policies: Sequence[Mean]) -> str:
    header = ["POLICY", "GIVEN OUT", "MEAN WAIT", "95TH", "NEVER RAN", "CPU", "A POD"]
    rows = []
    for policy in policies:
        allocated, mean, p95, never = policy.over_time()
        waits = [_seconds(mean), _seconds(p95), _count(never)]
        rows.append([policy.policy, f"{allocated:.2f} %", *waits, *_cost(policy)])
    return "GPUs given out in % of all, mean over time; waiting of all pods\n" + _table([header, *rows])


def _rejected(policies: Sequence[Mean]) -> str:
    kinds = sorted({kind for policy in policies for run in policy.runs for kind in run.rejected}, key=_size)
    rows = [
        [policy.policy, _count(policy.rejected), *[_count(policy.rejected_of(kind)) for kind in kinds]]
        for policy in policies
    ]
    return _table([["POLICY", "ALL", *kinds], *rows])


def _size(kind: str) -> tuple[int, str]:
    return (0, "") if kind == WITHOUT else (1, "") if kind == PART else (2, kind.zfill(9))


def _cost(policy: Mean) -> list[str]:
    return [f"{policy.cpu_seconds:.1f} s", f"{1000 * policy.cpu_seconds / policy.pods:.2f} ms"]


def _count(amount: float) -> str:
    return f"{amount:,.0f}" if amount == round(amount) else f"{amount:,.1f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max([len(row[column]) for row in rows]) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]]
        lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines) + "\n"
