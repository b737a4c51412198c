"""choose by policies that give points, while pods come and go and all GPUNodes change every 5 seconds."""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from bench import world
from bench.inside import Inside, cpu_ms
from bench.result import Result
from gpushare.core.facts import names
from gpushare.extender.vitals import GpuNode, Vitals
from gpushare.kube import stream

SIZES = (1_000, 5_000)
CALLS = 20
INTERVAL, RATE = 5.0, 200  # seconds between two figures of a node; pods a second
BUDGET = {1_000: 1.0, 5_000: 5.0}


def run() -> Iterator[Result]:
    for nodes in SIZES:
        inside = Inside(nodes)
        vitals = Vitals(inside.ledger, now=time.time, clock=time.monotonic)
        lines = [_line(number) for number in range(nodes)]
        for line in lines:
            _take(vitals, line)
        gc.collect()
        gc.freeze()
        note = f"{nodes:,} nodes"
        yield Result(f"choose by memory, {note}, binpack", _choose(inside, "binpack", mps=False), "ms")
        inside.life.policy = "metric"
        yield Result(f"choose by points, {note}, the first call", _choose(inside, "metric", once=True), "ms")
        for _ in range(3):
            _choose(inside, "metric", once=True)
        budget = BUDGET[nodes]
        yield Result(f"choose by points, {note}, metric", _choose(inside, "metric"), "ms", budget)
        events = nodes / INTERVAL / RATE  # between two calls
        changing = _changing(inside, vitals, lines, events)
        yield Result(f"choose by points, {note}, {events:g} GPUNodes change before each", changing, "ms", budget)
        gc.unfreeze()


def _line(number: int) -> bytes:
    made = world.gpu_node(number, 0, sampled_at=datetime.now(UTC).isoformat(timespec="seconds"))
    return msgspec.json.encode({"type": "MODIFIED", "object": made})


def _take(vitals: Vitals, line: bytes) -> None:
    item = stream.decoded(line, GpuNode, "gpunodes").object
    assert item is not None
    vitals.upsert(item)


def _bodies(inside: Inside, policy: str, mps: bool) -> list[bytes]:
    made = [world.pod(f"{policy}-{i}", 500) for i in range(CALLS)]
    for one in made if mps else ():
        one["spec"]["containers"][0]["resources"] = {"limits": {names.MPS_GPU: "1"}}
        one["metadata"]["annotations"] = {names.SLOT_MEMORY[0]: "500Mi"}
    return [world.question(one, inside.size) for one in made]


def _choose(inside: Inside, policy: str, *, mps: bool = True, once: bool = False) -> float:
    calls = [_call(inside, body) for body in _bodies(inside, policy, mps)]
    return cpu_ms(calls[:1], 1) if once else cpu_ms(calls, 15)


def _changing(inside: Inside, vitals: Vitals, lines: list[bytes], events: float) -> float:
    """Of the calls alone: what the events cost is taken off."""
    changes = itertools.cycle(lines)

    def change() -> None:
        for _ in range(max(round(events), 1)):
            _take(vitals, next(changes))

    calls = [_call(inside, body) for body in _bodies(inside, "changing", mps=True)]
    both = cpu_ms([step for call in calls for step in (change, call)], 10)
    return max(2 * both - cpu_ms([change] * CALLS, 10), 0.0)


def _call(inside: Inside, body: bytes) -> Callable[[], object]:
    return lambda: inside.verbs.choose(body)
