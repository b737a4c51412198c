"""How fast kube-scheduler places pods on a thousand nodes: alone, with our extender as shipped, with nobody but it
scoring, and with filter and prioritize instead of choose.

Goals are told, not asserted: the machine has other things to do. That all is right is asserted.
"""

import asyncio
import collections
import random
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.harness import shipped
from tests.e2e.harness.audit import Request
from tests.e2e.harness.cluster import SCHEDULER
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support.objects import Object

NODES, GPUS, PODS, ROUNDS = 1000, [16000] * 8, 1000, 2
SIZES = (500, 1000, 2000, 4000, 7000, 10000)
PLACED_SECONDS = 180.0
QUIET_SECONDS = 1.5  # until the scheduler's events about what was bound are written, too
GOALS = {"with ours": 0.9, "with ours, scoring alone": 1.1}  # times as fast as without any

NOBODY_ELSE_SCORES = {"preScore": {"disabled": [{"name": "*"}]}, "score": {"disabled": [{"name": "*"}]}}
WAYS: dict[str, dict[str, Any]] = {  # of configuring kube-scheduler
    "without extender": {"extenders": []},
    "with ours": {},
    "with ours, scoring alone": {"plugins": NOBODY_ELSE_SCORES},
    "with ours, filter and prioritize": {"extender": {"filterVerb": "filter"}},
}


class Measured(NamedTuple):
    rate: float  # pods a second
    cpu: dict[str, float]  # milliseconds for each pod, by program
    calls: dict[str, float]  # of the API, for each pod


@pytest.mark.alone
async def test_placing_is_about_as_fast_with_us_as_without(world: World, figures: Figures) -> None:
    await world.make_nodes(NODES, gpus=GPUS, pin="direct")
    measured: dict[str, list[Measured]] = {way: [] for way in WAYS}
    async with world.cluster.extender():
        for turn in range(ROUNDS):
            for number, way in enumerate(WAYS):
                measured[way].append(await _place(world, f"way-{turn}-{number}", WAYS[way]))
        metrics = await world.metrics()
    ours = PODS * ROUNDS * (len(WAYS) - 1)
    assert metrics("gpushare_bound_total") == ours
    assert metrics("gpushare_holds_total", outcome="right") == ours
    assert metrics("gpushare_holds_total", outcome="wrong") == metrics("gpushare_bind_conflicts_total") == 0
    seconds = {
        verb: metrics("gpushare_request_seconds_sum", verb=verb) / metrics("gpushare_request_seconds_count", verb=verb)
        for verb in ("choose", "filter", "prioritize", "bind")
    }

    alone = max(one.rate for one in measured["without extender"])
    for way, times in measured.items():
        best, rates = max(times), " and ".join(f"{one.rate:.0f}" for one in times)
        figures.say(
            f"{PODS} pods over {NODES} nodes × {len(GPUS)} GPUs, {way}",
            f"{rates} pods/s{_against_goal(way, best.rate / alone)}; CPU ms for each pod: "
            + ", ".join(f"{program} {spent:.1f}" for program, spent in best.cpu.items()),
        )
        figures.say(
            "  API calls for each pod", ", ".join(f"{kind} {calls:.2f}" for kind, calls in sorted(best.calls.items()))
        )
    figures.say(
        "the extender's answers, on average",
        ", ".join(f"{verb} {value * 1000:.2f} ms" for verb, value in seconds.items()),
    )


async def _place(world: World, name: str, way: dict[str, Any]) -> Measured:
    """All pods are there before the scheduler comes, so that nothing but placing them takes time."""
    dice = random.Random(36)
    pods: list[Object] = [
        {"name": f"{name}-{i:04}", "containers": {"main": dice.choice(SIZES)}, "direct": True, "scheduler": name}
        for i in range(PODS)
    ]
    made = await world.make_pods(*pods)
    profile = {"schedulerName": name, **{key: way[key] for key in ("plugins",) if key in way}}
    changes = {key: way[key] for key in ("extenders", "extender") if key in way}
    mark = world.cluster.audit.mark()
    async with world.cluster.scheduler(name=name, profiles=[profile], **changes):
        before = cpu_seconds(world)
        await world.watch.until_bound(*made, seconds=PLACED_SECONDS)
        cpu = {program: (spent - before[program]) * 1000 / PODS for program, spent in cpu_seconds(world).items()}
        await asyncio.sleep(QUIET_SECONDS)
    if "extenders" not in way:
        world.check_capacity()
    requests = world.requests(mark)
    bindings = [request for request in requests if request.kind == "pods/binding"]
    by = SCHEDULER if "extenders" in way else shipped.EXTENDER_USER
    assert collections.Counter(request.object_ref.name for request in bindings) == dict.fromkeys(made, 1)
    assert {(request.user.username, request.response_status.code) for request in bindings} == {(by, 201)}
    measured = Measured(
        rate=rate(bindings),
        cpu=cpu,
        calls={kind: calls / PODS for kind, calls in _by_kind(requests).items()},
    )
    await world.api.call("DELETE", world.api.pods, {"gracePeriodSeconds": 0})
    await world.watch.until("no pods", lambda: not world.watch.pods, 60)
    return measured


def rate(bindings: Iterable[Request]) -> float:
    """Between the first binding and the last."""
    times = [datetime.fromisoformat(request.request_received_timestamp) for request in bindings]
    return (len(times) - 1) / (max(times) - min(times)).total_seconds()


def _by_kind(requests: Iterable[Request]) -> collections.Counter[str]:
    return collections.Counter(
        f"{request.verb} {request.kind} by {'us' if request.user.username == shipped.EXTENDER_USER else 'scheduler'}"
        for request in requests
        if request.user.username in (SCHEDULER, shipped.EXTENDER_USER)
        and (request.user.username, request.kind) != (shipped.EXTENDER_USER, "events")  # 20 a second, long after
    )


def cpu_seconds(world: World) -> dict[str, float]:
    """What each program has used so far, to the nanosecond."""
    running = {process.name.removeprefix("kube-"): process.popen.pid for process in world.cluster.processes.running}
    return {
        name.partition("-way")[0]: sum(
            int(thread.read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1e9
        for name, pid in running.items()
    }


def _against_goal(way: str, ratio: float) -> str:
    if way not in GOALS:
        return ""
    return f", {ratio:.2f} of that without (goal {GOALS[way]}: {'ok' if ratio >= GOALS[way] else 'MISSED'})"
