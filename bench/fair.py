"""Fair waiting: how long a large pod waits in a crowd of small ones, and what it costs. Virtual time, all seeds.

About seven pods must end before the large one fits. If run times are random as here, the last of seven has not ended
after 5 mean run times in 1 of 22 cases, whatever is done short of eviction: hence a budget for most, and one for all.
"""

import gc
from collections.abc import Iterator
from statistics import median

from bench import world
from bench.crowd import LOADS, SEEDS, Crowd, Outcome
from bench.inside import Inside, cpu_ms, decoded_pod
from bench.result import Result
from gpushare.core.facts import request
from gpushare.core.ledger.holding import Kept
from gpushare.core.scheduling.patience import Patience
from gpushare.core.scheduling.reach import ANYWHERE

PATIENCE = 1 / 6  # of a mean run time: 10 minutes of an hour
HORIZON = 100.0  # mean run times
NODES, KEPT = 1_000, 50


def run() -> Iterator[Result]:
    late = 0
    for load in LOADS:
        waited = sorted(_waited(Crowd(load, seed, PATIENCE).run(0)) for seed in range(SEEDS))
        late += sum(wait > 5 for wait in waited)
        note = f"large pod at {load:.0%} load, {SEEDS} seeds: waits beyond patience"
        yield Result(f"{note}, median", median(waited), "runs", 5.0)
        yield Result(f"{note}, longest", waited[-1], "runs", 8.0)
        yield Result(f"GPU memory given out at {load:.0%} load, fewer points", _lost(load), "points", 3.0)
    yield Result("large pods that wait longer than patience and 5 mean runs", 100 * late / SEEDS / len(LOADS), "%", 5.0)
    plain, kept, update = _filters()
    yield Result(f"filter, {NODES:,} nodes, nothing kept", plain, "ms")
    yield Result(f"filter, {NODES:,} nodes, GPUs kept on {KEPT}, against none", kept / plain, "times", 2.0)
    yield Result(f"patience, {NODES:,} nodes, {KEPT} kept, 5,000 pods wait, each second", update, "ms", 20.0)


def _waited(outcome: Outcome) -> float:
    assert outcome.waited is not None
    return outcome.waited - PATIENCE


def _lost(load: float) -> float:
    without, with_it = (
        sum(Crowd(load, seed, patience).run(HORIZON).allocated for seed in range(SEEDS)) / SEEDS
        for patience in (0.0, PATIENCE)
    )
    return max(100 * (without - with_it), 0.0)


def _filters() -> tuple[float, float, float]:
    """A filter over all nodes, all of which fit, before and after GPUs of some are kept; and one round of turns."""
    inside = Inside(NODES)
    gc.collect()
    gc.freeze()
    bodies = [world.question(world.pod(f"fair-{i}", world.SMALL + i), NODES) for i in range(20)]
    calls = [(lambda body=body: inside.verbs.filter(body)) for body in bodies]
    plain = cpu_ms(calls, 15)
    for i in range(KEPT):
        large = request.facts(decoded_pod(world.pod(f"large-{i}", world.HUGE)), None)
        inside.ledger.keep(Kept(large, world.node_name(i), ((f"GPU-{i:08x}-0000",),), float(i)))
    kept = cpu_ms(calls, 15)
    for i in range(KEPT):
        inside.ledger.keep_no_longer(f"uid-large-{i}")
    update = _update(inside)
    gc.unfreeze()
    return plain, kept, update


def _update(inside: Inside) -> float:
    waiting = [request.facts(decoded_pod(_waiting(f"many-{i}")), None) for i in range(5_000)]
    patience = Patience(600.0)
    for seconds in range(100):  # some are given a turn each time
        patience.update(inside.ledger, waiting, ANYWHERE, 2e9 + seconds)
    assert len(patience.turns) >= KEPT
    return cpu_ms([lambda: patience.update(inside.ledger, waiting, ANYWHERE, 2e9 + 100)], 9)


def _waiting(name: str) -> dict[str, object]:
    made = world.pod(name, world.HUGE, size=0)
    made["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1000 nodes",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]  # fmt: skip
    return made
