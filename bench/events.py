"""What one watch event costs: the same on a large cluster as on a small one, however many sizes people ask for."""

import gc
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from bench import world
from bench.inside import Inside, cpu_ms, decoded_pod
from bench.result import Result
from gpushare.core.facts import objects
from gpushare.extender.vitals import GpuNode, Vitals
from gpushare.kube import stream

SMALL, LARGE = 100, 10_000
GROWTH_BUDGET = 1.5
ROUNDS = 200
GPUNODE_BUDGET = 0.05
CONTAINERS = 80
POD_NODE, CHANGING_NODE = 7, 9
UNITS = {"152 KB": 3_500, "845 KB": 20_000}


def run() -> Iterator[Result]:
    few, many = _inside(SMALL), _inside(LARGE)
    gc.collect()
    gc.freeze()
    pod_small, pod_large = _in_turn(_pod_event, few, many)
    yield Result(f"pod event, {SMALL} nodes", pod_small, "ms")
    yield Result(f"pod event, {LARGE:,} nodes", pod_large, "ms")
    yield Result(f"pod event, {LARGE:,} nodes against {SMALL}", pod_large / pod_small, "times", GROWTH_BUDGET)
    node_small, node_large = _in_turn(_node_event, few, many)
    yield Result(f"node event, {SMALL} nodes", node_small, "ms")
    yield Result(f"node event, {LARGE:,} nodes against {SMALL}", node_large / node_small, "times", GROWTH_BUDGET)
    sizes_few, sizes_many = _with_sizes(few, 20), _with_sizes(few, 10_000)
    yield Result("pod event, 10,000 sizes asked against 20", sizes_many / sizes_few, "times", GROWTH_BUDGET)
    for name, units in UNITS.items():
        yield Result(f"pod event, pod of {name} from a device-plugin node", _status_event(few, units), "ms")
    name = f"event of a GPUNode with {world.GPUS} GPUs and {CONTAINERS} containers"
    yield Result(name, _gpu_node_event(few), "ms", GPUNODE_BUDGET)
    gc.unfreeze()


def _in_turn(measure: Callable[[Inside], float], few: Inside, many: Inside) -> tuple[float, float]:
    """The best of three each, taken in turn: what else the machine does must not fall on one of them alone."""
    pairs = [(measure(few), measure(many)) for _ in range(3)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def _inside(nodes: int) -> Inside:
    """Full are only the two nodes on which something happens."""
    inside = Inside(nodes, pods=False)
    for number in (POD_NODE, CHANGING_NODE):
        for copy in range(world.GPUS * world.PODS_A_GPU):
            filler = world.pod(f"fill-{number}-{copy}", 10, node=world.node_name(number), gpu=copy % world.GPUS)
            inside.pods.upsert(decoded_pod(filler))
    return inside


def _pod_event(inside: Inside) -> float:
    """A pod is bound, and is gone again: decoding included."""
    body = msgspec.json.encode(world.pod("event", 100, node=world.node_name(POD_NODE), gpu=2))
    events = [lambda: inside.pods.upsert(_pods.decode(body)), lambda: inside.pods.remove(_pods.decode(body))]
    return cpu_ms(events, ROUNDS)


def _node_event(inside: Inside) -> float:
    """A GPU becomes unhealthy and healthy again."""
    node = world.node(CHANGING_NODE, size=10_000)
    healthy = msgspec.json.encode(node)
    note = node["metadata"]["annotations"]
    note.update({key: value.replace('"ok": true', '"ok": false', 1) for key, value in note.items()})
    bodies = (msgspec.json.encode(node), healthy)
    return cpu_ms([lambda body=body: inside.nodes.upsert(_nodes.decode(body)) for body in bodies], ROUNDS)  # type: ignore[misc]


def _with_sizes(inside: Inside, sizes: int) -> float:
    for size in range(sizes):
        asked = world.pod(f"size-{size}", 100 + size, 50, size=0)
        inside.verbs.filter(world.question(asked, SMALL))
    return _pod_event(inside)


def _status_event(inside: Inside, units: int) -> float:
    """kubelet from 1.36 on lists every unit in the pod's status."""
    item = world.pod("plugin-pod", units, node=world.node_name(3), gpu=1)
    health = [{"resourceID": f"k3v{unit:x}", "health": "Healthy"} for unit in range(units)]
    item["status"]["containerStatuses"] = [{"allocatedResourcesStatus": [{"name": "r", "resources": health}]}]
    body = msgspec.json.encode(item)
    return cpu_ms([lambda: inside.pods.upsert(_pods.decode(body))], 25)


def _gpu_node_event(inside: Inside) -> float:
    """From a line of the watch to what is kept of it."""
    kept = Vitals(inside.ledger, now=time.time, clock=time.monotonic)
    made = world.gpu_node(CHANGING_NODE, CONTAINERS, sampled_at=datetime.now(UTC).isoformat(timespec="seconds"))
    line = msgspec.json.encode({"type": "MODIFIED", "object": made})

    def event() -> None:
        item = stream.decoded(line, GpuNode, "gpunodes").object
        assert item is not None
        kept.upsert(item)

    return cpu_ms([event], ROUNDS)


_pods = msgspec.json.Decoder(objects.Pod)
_nodes = msgspec.json.Decoder(objects.Node)
