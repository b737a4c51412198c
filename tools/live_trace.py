"""Makes a trace of memory-sized requests on unequal GPUs, with beginnings and ends, out of a trace of Alibaba.

    python -m tools.live_trace PODS.csv --nodes NODES.csv --load 1.0 --seed 1 > live.json
    gpushare replay live.json --departures --policy binpack,fgd,vrc

The published traces count thousandths of "a GPU", whatever GPU that is, and nothing ends in their benchmark. In a live
cluster people ask for MiB, which are a smaller part of a larger GPU, and pods end. So:

* GPUs get the memory that `nvidia-smi` shows for their model. Two models are not disclosed: G2 is taken for an A10, G3
  for an A100.
* Each pod was sized for some GPU: one that is drawn in proportion to how many of the kind there are, among the models
  that the pod may use. Its part of that GPU, in whole GiB, is what it asks. A whole GPU is asked as all its whole GiB.
  So what a pod takes does not depend on where it goes, and allocations of two policies can be compared.
* Pods come in the order and with the gaps of the trace, again and again, each time with new draws. Gaps of more than an
  hour are cut to one hour. The seed says where in the trace it begins.
* Pods run as long as in the trace, but no longer than 4 hours: 6 % ran longer, some for months. They would stay for the
  whole replay, and the benchmark without ends has that case. A pod whose times are missing gets those of another.
* Time between arrivals, not running time, is then compressed so that pods ask `--load` of all GPU memory on average.
* Every eighth node is taken, so that the trace goes through the cluster many times.
"""

import argparse
import itertools
import random
import sys
from collections.abc import Sequence

import msgspec

from gpushare.obs.errors import UserError
from gpushare.sim.reading import load
from gpushare.sim.trace import Gpu, Node, Pod, Trace, written

GPU_MEMORY_MIB = {
    "T4": 15360, "P100": 16384, "V100M16": 16384, "V100M32": 32768, "A10": 23028, "G2": 23028, "G3": 81920,
}  # fmt: skip
WHOLE = 1000  # thousandths, in the traces of Alibaba
GIB = 1024
LONGEST_GAP = 3600.0  # seconds
LONGEST_RUN = 4 * 3600.0
ONE_OF = 8  # nodes


def made(trace: Trace, load: float, seed: int, pods: int) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    chance = random.Random(seed)
    nodes = _nodes(trace.nodes, chance)
    came = sorted(trace.pods, key=lambda pod: pod.arrival)
    gaps = [min(after.arrival - pod.arrival, LONGEST_GAP) for pod, after in itertools.pairwise(came)]
    gaps.append(LONGEST_GAP)  # from the end of the trace to its beginning
    known = [pod.duration for pod in came if pod.duration is not None]
    if not known:
        raise UserError("no pod of this trace has times", "columns creation_time and deletion_time", "another trace")
    begin, clock = chance.randrange(len(came)), 0.0
    made: list[Pod] = []
    for number in range(pods):
        at = (begin + number) % len(came)
        duration = came[at].duration
        runs = min(duration if duration is not None else chance.choice(known), LONGEST_RUN)
        made.append(
            msgspec.structs.replace(
                _sized(came[at], nodes, chance), name=f"pod-{number:06}", arrival=clock, duration=runs
            )
        )
        clock += gaps[at]
    factor = _asked(made) / (load * clock * sum(gpu.memory_mib for node in nodes for gpu in node.gpus))
    return nodes, tuple([msgspec.structs.replace(pod, arrival=round(pod.arrival * factor, 3)) for pod in made])


def _nodes(nodes: Sequence[Node], chance: random.Random) -> tuple[Node, ...]:
    shuffled = chance.sample(nodes, len(nodes) // ONE_OF)
    sized = [
        msgspec.structs.replace(node, gpus=tuple([Gpu(GPU_MEMORY_MIB[gpu.model], gpu.model) for gpu in node.gpus]))
        for node in shuffled
    ]
    return tuple(sorted(sized, key=lambda node: node.name))


def _sized(pod: Pod, nodes: Sequence[Node], chance: random.Random) -> Pod:
    """The pod with MiB instead of thousandths, for a node that could take it."""
    if not pod.gpus:
        return pod
    able = [
        node
        for node in nodes
        if len(node.gpus) >= pod.gpus
        and node.cpu_milli >= pod.cpu_milli
        and node.memory_mib >= pod.memory_mib
        and (not pod.models or node.gpus[0].model in pod.models)
    ]
    meant = chance.choices(able, weights=[len(node.gpus) for node in able])[0].gpus[0]
    part = pod.gpu_memory_mib or WHOLE
    return msgspec.structs.replace(pod, gpu_memory_mib=max(meant.memory_mib * part // WHOLE // GIB, 1) * GIB)


def _asked(pods: Sequence[Pod]) -> float:
    """MiB times seconds."""
    return sum(pod.gpus * pod.gpu_memory_mib * (pod.duration or 0.0) for pod in pods)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.live_trace", description=__doc__.partition("\n")[0])
    parser.add_argument("trace", help="a pod list of Alibaba's trace, with times")
    parser.add_argument("--nodes", required=True, help="its node list")
    parser.add_argument("--load", type=float, default=1.0, help="how much of all GPU memory pods ask on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods", type=int, default=20_000)
    args = parser.parse_args(words)
    try:
        nodes, pods = made(load.trace(args.trace, args.nodes), args.load, args.seed, args.pods)
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code
    sys.stdout.write(written(nodes, pods))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
