"""What is replayed: nodes, and pods in the order of the file. Also the shape of our own files.

One JSON document has both. `gpushare snapshot` writes it.

    {"version": 1,
     "nodes": [{"name": "gpu-a", "cpu_milli": 64000, "memory_mib": 262144,
                "gpus": [{"memory_mib": 16276, "model": "T4"}, {"memory_mib": 16276, "model": "T4"}]}],
     "pods": [{"name": "web-1", "cpu_milli": 1000, "memory_mib": 2048, "gpus": 1, "gpu_memory_mib": 3500,
               "models": ["T4", "A10"], "arrival": 0, "duration": 3600}]}

The same in two CSV files, where lists are written with bars:

    name,cpu_milli,memory_mib,gpu_memory_mib,model
    gpu-a,64000,262144,16276|16276,T4

    name,cpu_milli,memory_mib,gpus,gpu_memory_mib,models,arrival,duration
    web-1,1000,2048,1,3500,T4|A10,0,3600

`gpu_memory_mib` of a pod is what it takes on each of its GPUs; 0 (or nothing): the whole GPUs. Without `models` it may
use any node, else those that have a GPU of such a model. `arrival` and `duration` are seconds; a pod without a duration
never ends. In CSV one model stands for all GPUs of a node, and `T4|A10` for one of each. Other columns are ignored.
"""

from collections.abc import Callable

import msgspec

from gpushare.core.facts.model import Data

VERSION = 1


class Gpu(Data, frozen=True):
    memory_mib: int
    model: str = ""


class Node(Data, frozen=True):
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()


class Pod(Data, frozen=True, omit_defaults=True):
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_memory_mib: int = 0  # on each of its GPUs; 0: they are its own wholly
    models: tuple[str, ...] = ()  # that it may use; empty: any
    arrival: float = 0.0  # seconds
    duration: float | None = None  # seconds; None: it never ends

    def may_use(self, node: Node) -> bool:
        return not self.models or any(gpu.model in self.models for gpu in node.gpus)


class Trace(Data, frozen=True):
    """A trace of Alibaba counts thousandths of a GPU: there each GPU has a "memory" of 1000."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    timed: bool = True  # the file says when pods come

    @property
    def capacity(self) -> int:
        """Of all GPUs together."""
        return sum([gpu.memory_mib for node in self.nodes for gpu in node.gpus])

    @property
    def gpus(self) -> int:
        return sum([len(node.gpus) for node in self.nodes])

    def amounts(self) -> Callable[[Pod], float]:
        """What a pod asks of GPUs. How much a whole GPU is, its place decides: here it is the mean of all."""
        whole = self.capacity / self.gpus
        return lambda pod: pod.gpus * (pod.gpu_memory_mib or whole)


class Document(Data, frozen=True):
    """The JSON file."""

    version: int
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]


def written(nodes: tuple[Node, ...], pods: tuple[Pod, ...]) -> str:
    """The JSON document, a line for each node and pod, so that people can read and compare it."""
    encode = msgspec.json.Encoder().encode
    lines = [",\n  ".join([encode(one).decode() for one in some]) for some in (nodes, pods)]
    return f'{{"version": {VERSION},\n "nodes": [\n  {lines[0]}],\n "pods": [\n  {lines[1]}]}}\n'
