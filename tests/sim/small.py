"""A small trace of our own: twelve nodes of three sorts, and pods of all classes. The same each time."""

import random
from pathlib import Path

from gpushare.sim.trace import Gpu, Node, Pod, Trace

SORTS = ((32000, 131072, 2, "T4"), (64000, 262144, 4, "P100"), (96000, 393216, 8, "G2"))
SHARES = (100, 250, 320, 470, 500, 650, 810)
COUNTS = (1, 1, 1, 1, 2, 4, 8)


def trace(pods: int = 60, nodes: int = 12, seed: int = 7) -> Trace:
    chance = random.Random(seed)
    return Trace(tuple([_node(i) for i in range(nodes)]), tuple([_pod(i, chance) for i in range(pods)]))


def _node(i: int) -> Node:
    cpu, memory, gpus, model = SORTS[i % len(SORTS)]
    return Node(f"node-{i:03}", cpu, memory, (Gpu(1000, model),) * gpus)


def _pod(i: int, chance: random.Random) -> Pod:
    kind = chance.random()
    gpus = 0 if kind < 0.15 else 1 if kind < 0.6 else chance.choice(COUNTS)
    share = chance.choice(SHARES) if 0.15 <= kind < 0.6 else 0
    models = chance.choice([(), (), (), ("G2",), ("P100", "G2")]) if gpus else ()
    arrival, duration = float(i * 10), float(chance.randrange(0, 900))
    cpu, memory = chance.choice([500, 2000, 4000, 8000]), chance.choice([1024, 8192, 16384])
    return Pod(f"pod-{i:04}", cpu, memory, gpus, share, models, arrival, duration if chance.random() < 0.9 else None)


def openb(made: Trace, folder: Path) -> tuple[str, str]:
    """The names of its two files, pods and nodes."""
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time"]
    for pod in made.pods:
        milli = (pod.gpu_memory_mib or 1000) if pod.gpus else 0
        ends = "" if pod.duration is None else f"{pod.arrival + pod.duration:.0f}"
        times = f"{pod.arrival:.0f},{ends},{pod.arrival:.0f}"
        pods.append(f"{pod.name},{pod.cpu_milli},{pod.memory_mib},{pod.gpus},{milli},{'|'.join(pod.models)},{times}")
    nodes = [
        f"{node.name},{node.cpu_milli},{node.memory_mib},{len(node.gpus)},{node.gpus[0].model}" for node in made.nodes
    ]
    nodes.insert(0, "sn,cpu_milli,memory_mib,gpu,model")
    files = folder / "pods.csv", folder / "nodes.csv"
    for file, lines in zip(files, (pods, nodes), strict=True):
        file.write_text("\n".join(lines) + "\n")
    return str(files[0]), str(files[1])
