"""`make bench-packing DATA=FOLDER`: the packing benchmark with every policy, beside what was published.

One row for each trace and policy: how many figures are exactly as published, GPUs allocated in percent when as much as
the cluster has was asked for, and 1.3 times that, each with the difference to `fgd` on the same pods (its mean, the
standard error, and with how many seeds it is better), then the CPU time. `ARGS="-k WORD"` runs rows with that word,
`ARGS="--seeds 42,43"` these seeds. Exit code 1 if a policy decides otherwise than as published.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from math import sqrt

from bench.published import EXACT, SEEDS, TRACES, Published, figures
from gpushare.core.facts.policies import POLICIES
from gpushare.obs.errors import UserError
from gpushare.sim.results import Run

NO_DATA = "make bench-packing needs DATA=FOLDER, a folder with traces/, arrivals/ and published/"
REFERENCE = "fgd"
MEASURED = [name for name, policy in POLICIES.items() if policy.score is None]  # the others go by measurements
HEADER = f"{'trace':<12}{'policy':<16}{'as published':>14}{'at 100':>8}{'to fgd':>22}{'at 130':>8}{'to fgd':>22}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-packing", description="The packing benchmark, with every policy.")
    parser.add_argument("-k", default="", metavar="WORD", help="only rows with this word in trace or policy")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), metavar="N,N", help="some of 42 to 51")
    given = parser.parse_args()
    folder = os.environ.get("DATA", "")
    if not folder:
        print(NO_DATA, file=sys.stderr)
        return 2
    try:
        return measure(Published(folder), given.k, [int(seed) for seed in given.seeds.split(",")])
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code


def measure(published: Published, word: str, seeds: Sequence[int]) -> int:
    print(f"{HEADER}{'CPU-s a run':>13}{'ms a pod':>10}", flush=True)
    others = 0
    for name in TRACES:
        policies = [policy for policy in MEASURED if word in f"{name} {policy}"]
        if not policies:
            continue
        trace = published.trace(name)
        reference = published.replays(name, trace, REFERENCE, seeds)
        for policy in policies:
            runs = reference if policy == REFERENCE else published.replays(name, trace, policy, seeds)
            equal = sum([published.equal(name, run) for run in runs]) if policy in EXACT else None
            others += equal is not None and equal < figures() * len(runs)
            print(_row(name, runs, reference, equal), flush=True)
    print(f"{others} differ from what was published" if others else "all as published", file=sys.stderr)
    return 1 if others else 0


def _row(trace: str, runs: Sequence[Run], reference: Sequence[Run], equal: int | None) -> str:
    exact = "" if equal is None else f"{equal}/{figures() * len(runs)}"
    loads = [f"{_mean(_allocated(runs, at)):>8.2f}{_difference(runs, reference, at):>22}" for at in (100, 130)]
    spent, pods = sum([run.cpu_seconds for run in runs]), sum([run.pods for run in runs])
    cost = f"{spent / len(runs):>13.2f}{1000 * spent / pods:>10.3f}"
    return f"{trace:<12}{runs[0].policy:<16}{exact:>14}{''.join(loads)}{cost}"


def _allocated(runs: Sequence[Run], at: int) -> list[float]:
    return [[point.allocated for point in run.points if point.load <= at][-1] for run in runs]


def _difference(runs: Sequence[Run], reference: Sequence[Run], at: int) -> str:
    """Of runs with the same seeds."""
    pairs = zip(_allocated(runs, at), _allocated(reference, at), strict=True)
    more = [ours - theirs for ours, theirs in pairs]
    if runs is reference:
        return ""
    spread = sum([(one - _mean(more)) ** 2 for one in more])
    error = sqrt(spread / (len(more) - 1) / len(more)) if len(more) > 1 else 0.0
    return f"{_mean(more):+.2f} ±{error:.3f} {sum([one > 0 for one in more])}/{len(more)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main())
