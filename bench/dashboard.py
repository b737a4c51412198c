"""The dashboard with 8,000 GPUs and 24,607 shares, of which 533 GPUs say something new each second.

What is sent: the size of a snapshot and of a message a second. What it costs: a tick, a message for twenty browsers, an
event of a pod and of a GPUNode. What it keeps: the rings of 48 hours, and the cluster itself. Node names, models,
amounts and figures differ as in a real cluster, and figures change a bit from one sample to the next.
"""

import gc
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import msgspec

from bench import process, world
from bench.inside import cpu_ms
from bench.result import Result
from gpushare.core.facts import names
from gpushare.dashboard.live.cluster import Live
from gpushare.dashboard.live.columns import Row
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.sinks import GpuNode
from gpushare.dashboard.live.sums import Cluster
from gpushare.dashboard.live.ticks import Ticks
from gpushare.kube import stream
from gpushare.view.snapshot import Node
from gpushare.view.why.pod_details import Pod

NODES, SHARES = 1_000, 24_607
CHANGING = 67  # nodes a second: each tells what its GPUs do every 15 seconds
CLIENTS = 20
WAITING, SIZES = 200, 12
SECONDS = 30
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
MODELS = (("A100-SXM4-80GB", 81_920), ("H100-80GB-HBM3", 81_559), ("L40S", 46_068), ("T4", 15_360))
PARTS = (32, 16, 10, 8, 8, 5, 4, 3)  # what people ask: that part of a GPU


class Crowd:
    """A large cluster in a `Live`. Everything by chance comes from one seed."""

    def __init__(self) -> None:
        self.chance = random.Random(7)
        self.now = START
        self.live = Live(lambda: self.now)
        self.history = History()
        self.ticks = Ticks(self.live, self.history, epoch="8f3a12", now=lambda: self.now, clock=lambda: self.now)
        self.statuses = [self._node(number) for number in range(NODES)]
        for number, share in enumerate(self._shares()):
            self._pod(number, *share)
        for number in range(WAITING):
            asked = world.pod(f"waits-{number}", 60_000 + 100 * (number % SIZES), size=0)
            self.live.pods.upsert(_pods.decode(msgspec.json.encode(asked)))
        self.publish(range(NODES))
        self.second()

    def publish(self, nodes: range) -> None:
        for number in nodes:
            self.live.doing.upsert(_gpunodes.decode(msgspec.json.encode(self.changed(number))))

    def changed(self, number: int) -> dict[str, Any]:
        """What a node tells next: a bit more or less of everything."""
        made = self.statuses[number]
        made["status"]["sampledAt"] = datetime.fromtimestamp(self.now - 1, UTC).isoformat(timespec="seconds")
        for gpu in made["status"]["gpus"]:
            busy = gpu["utilization"] = _near(gpu["utilization"], 8, 100, self.chance)
            gpu["temperature"] = _near(gpu["temperature"], 1, 90, self.chance)
            gpu["powerWatts"] = 60 + 3 * busy + self.chance.randrange(12)
            for one in gpu["containers"]:
                if self.chance.random() < 0.3:
                    one["usedMiB"] = _near(one["usedMiB"], 64, one["grantedMiB"], self.chance)
            gpu["usedMiB"] = sum(one["usedMiB"] for one in gpu["containers"]) + 412
        return made

    def second(self) -> None:
        self.now += 1.0
        self.ticks.tick()

    def _node(self, number: int) -> dict[str, Any]:
        model, total = MODELS[number * len(MODELS) // NODES]
        made = world.node(number, size=10_000)
        note = made["metadata"]["annotations"]
        note[names.NODE_GPUS] = note[names.NODE_GPUS].replace('"A100"', f'"{model}"')
        note[names.NODE_GPUS] = note[names.NODE_GPUS].replace(str(world.TOTAL), str(total))
        memory = {names.GPU_MEM: str(total * world.GPUS)}
        made["status"]["capacity"] = made["status"]["allocatable"] = made["status"]["capacity"] | memory
        made["metadata"]["labels"] = {"topology.kubernetes.io/zone": f"zone-{number % 3}"}
        self.live.nodes.upsert(_nodes.decode(msgspec.json.encode(made)))
        told = world.gpu_node(number, 0)
        for gpu in told["status"]["gpus"]:
            gpu |= {"totalMiB": total, "temperature": self.chance.randrange(35, 80)}
            gpu["utilization"] = self.chance.choice((0, 0, self.chance.randrange(101)))
        return told

    def _shares(self) -> Iterator[tuple[int, int, int]]:
        """Node, GPU and amount, as many as there are."""
        free = {
            (node, gpu): MODELS[node * len(MODELS) // NODES][1] for node in range(NODES) for gpu in range(world.GPUS)
        }
        places = list(free)
        made = 0
        while made < SHARES:
            node, gpu = place = self.chance.choice(places)
            total = MODELS[node * len(MODELS) // NODES][1]
            amount = total // self.chance.choice(PARTS)
            if free[place] >= amount:
                free[place] -= amount
                made += 1
                yield node, gpu, amount

    def _pod(self, number: int, node: int, gpu: int, amount: int) -> None:
        namespace, name = f"team-{self.chance.randrange(40)}", f"app-{self.chance.randrange(10**9):09x}-{number}"
        made = world.pod(name, amount, node=world.node_name(node), gpu=gpu)
        made["metadata"] |= {"namespace": namespace, "labels": {"app": f"app-{number % 400}"}}
        self.live.pods.upsert(_pods.decode(msgspec.json.encode(made)))
        used = self.chance.choice((amount // 10, amount * 7 // 10, amount * 9 // 10))
        share: dict[str, Any] = {"namespace": namespace, "pod": name, "uid": f"uid-{name}", "container": "c0"}
        share |= {"grantedMiB": amount, "usedMiB": used, "smPercent": self.chance.randrange(100)}
        self.statuses[node]["status"]["gpus"][gpu]["containers"].append(share)


def run() -> Iterator[Result]:
    gc.collect()
    before = _resident_mb()
    crowd = Crowd()
    gc.collect()
    note = f"dashboard, {NODES * world.GPUS:,} GPUs, {SHARES:,} shares"
    yield Result(f"{note}: the cluster in memory", _resident_mb() - before, "MB", 250.0)
    yield Result(f"{note}: snapshot, compressed", len(crowd.ticks.snapshot_body()[1]) / 1000, "KB", 130.0)
    gc.freeze()
    yield from _seconds(crowd)
    yield Result(f"{note}: make a snapshot", cpu_ms([lambda: _fresh_body(crowd)], 5), "ms", 100.0)
    yield from _events(crowd)
    yield Result(f"{note}: a sample of history", cpu_ms([lambda: _sample(crowd)], 20), "ms", 30.0)
    yield Result(f"{note}: 48 hours in memory", _rings(crowd), "MB", 100.0)
    gc.unfreeze()


def _seconds(crowd: Crowd) -> Iterator[Result]:
    """As it goes on: 67 nodes tell something, then comes a tick."""
    frames: list[bytes] = []
    spent: list[float] = []
    end = crowd.ticks.subscribe(frames.append)
    for second in range(SECONDS):
        crowd.publish(range(second % 15 * CHANGING, min(second % 15 * CHANGING + CHANGING, NODES)))
        spent.append(cpu_ms([crowd.second], 1))
    end()
    changed = CHANGING * world.GPUS
    yield Result(
        f"dashboard, {changed} GPUs changed: message a second", max(map(len, frames)) / 1000, "KB", 4.0, of=max
    )
    yield Result(f"dashboard, {changed} GPUs changed: tick", fmean(spent), "ms", 30.0, of=fmean)
    yield Result(f"dashboard, {CLIENTS} browsers: message, for each", _fan_out(crowd, changed) / CLIENTS, "ms", 0.2)


def _fan_out(crowd: Crowd, changed: int) -> float:
    """The differences encoded once, and told to every browser."""
    ticks = crowd.ticks
    ends = [ticks.subscribe(bytearray().extend) for _ in range(CLIENTS)]
    before = dict(ticks._rows)
    crowd.publish(range(CHANGING))
    crowd.second()
    pairs = [(row, ticks._rows[name]) for name, row in before.items() if row is not ticks._rows[name]]
    assert sum(len(row.gpus) for row, _ in pairs) == changed
    spent = cpu_ms([lambda: ticks._send_changes(pairs, None)], 10)
    for end in ends:
        end()
    return spent


def _events(crowd: Crowd) -> Iterator[Result]:
    pod = msgspec.json.encode(world.pod("event", 100, node=world.node_name(7), gpu=2))
    calls = [lambda: crowd.live.pods.upsert(_pods.decode(pod)), lambda: crowd.live.pods.remove(_pods.decode(pod))]
    yield Result("dashboard, pod event", cpu_ms(calls, 200), "ms", 0.3)
    line = msgspec.json.encode({"type": "MODIFIED", "object": crowd.changed(9)})
    count = sum(len(gpu["containers"]) for gpu in crowd.statuses[9]["status"]["gpus"])

    def event() -> None:
        item = stream.decoded(line, GpuNode, "gpunodes").object
        assert item is not None
        crowd.live.doing.upsert(item)

    yield Result(f"dashboard, event of a GPUNode with {count} containers", cpu_ms([event], 200), "ms", 0.15)


def _fresh_body(crowd: Crowd) -> None:
    crowd.ticks._body = None
    crowd.ticks.snapshot_body()


def _sample(crowd: Crowd) -> None:
    crowd.now += 15.0
    crowd.history.sample(crowd.now, crowd.ticks._cluster())


def _rings(crowd: Crowd) -> float:
    """Resident memory of a history as it is after 48 hours, with every frame full."""
    rows: list[Row] = list(crowd.ticks._rows.values())
    gc.collect()
    before = _resident_mb()
    history, now = History(), START
    for row in rows:
        history.see(row, now)
    for _ in range(600):
        now += 300.0
        history.sample(now, Cluster(waiting={"NoSingleGpu": 3}))
    gc.collect()
    assert len(history.gpu(rows[0].name, rows[0].gpus[0].key, "48h", now)["times"]) > 570
    return _resident_mb() - before


def _near(value: int, by: int, most: int, chance: random.Random) -> int:
    return min(max(value + chance.randint(-by, by), 0), most)


def _resident_mb() -> float:
    return process.resident_mb_now(os.getpid())


_pods = msgspec.json.Decoder(Pod)
_nodes = msgspec.json.Decoder(Node)
_gpunodes = msgspec.json.Decoder(GpuNode)
