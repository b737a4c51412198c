"""The published policies once more, straight from their formulas: every node is asked, nothing is kept, one pod after
the other. Slow, and written without the code that it checks."""

from math import exp
from typing import NamedTuple

from gpushare.sim.trace import Node, Pod, Trace

CORES, GPUS = 128_000, 8_000
LACKS_BOTH, LACKS_GPU, LACKS_CPU, NO_GPU_ASKED, NO_GPU_ASKED_LACKS_CPU, WRONG_MODEL = range(6)


class Decision(NamedTuple):
    node: int  # by position in the trace
    gpus: tuple[int, ...]


class Machine:
    """A node of the trace, as it is now."""

    def __init__(self, node: Node, rank: int) -> None:
        self.cpu, self.memory, self.rank = node.cpu_milli, node.memory_mib, rank
        self.free = [1000] * len(node.gpus)
        self.model = node.gpus[0].model
        self.classes: set[int] = set()

    def takes(self, pod: Pod) -> bool:
        each = pod.gpu_memory_mib or 1000
        able = sum([free >= each for free in self.free])
        models = not pod.models or self.model in pod.models
        return self.cpu >= pod.cpu_milli and self.memory >= pod.memory_mib and models and able >= pod.gpus

    def choices(self, pod: Pod) -> list[tuple[int, ...]]:
        """For a part of a GPU each GPU with room, otherwise the first that are whole."""
        if pod.gpus and pod.gpu_memory_mib:
            return [(gpu,) for gpu, free in enumerate(self.free) if free >= pod.gpu_memory_mib]
        return [tuple([gpu for gpu, free in enumerate(self.free) if free == 1000][: pod.gpus])]

    def put(self, pod: Pod, gpus: tuple[int, ...], sign: int = 1) -> None:
        self.cpu -= sign * pod.cpu_milli
        self.memory -= sign * pod.memory_mib
        for gpu in gpus:
            self.free[gpu] -= sign * (pod.gpu_memory_mib or 1000)


class Rules:
    """One policy and one cluster."""

    def __init__(self, trace: Trace, ranks: list[int], policy: str) -> None:
        self.machines = [Machine(node, rank) for node, rank in zip(trace.nodes, ranks, strict=True)]
        self.score = {
            "best-fit": self.best_fit,
            "dotprod": self.dot_product,
            "gpu-packing": self.packing,
            "gpu-clustering": self.clustering,
            "fgd": self.gradient,
        }[policy]
        self.by_score = policy == "fgd"  # which GPU; else the fullest with room
        self.typical = typical(trace)

    def place(self, pod: Pod) -> Decision | None:
        found = []
        for position, machine in enumerate(self.machines):
            if machine.takes(pod):
                gpus, score = self.best(machine, pod)
                found.append((-score, machine.rank, position, gpus))
        if not found:
            return None
        _, _, position, gpus = min(found)
        self.machines[position].put(pod, gpus)
        if pod.gpus:
            self.machines[position].classes.add(0 if pod.gpu_memory_mib else pod.gpus)
        return Decision(position, gpus)

    def best(self, machine: Machine, pod: Pod) -> tuple[tuple[int, ...], int]:
        choices = machine.choices(pod)
        if not self.by_score and len(choices) > 1:
            choices = [min(choices, key=lambda gpus: (machine.free[gpus[0]], gpus))]
        scores = [self.score(machine, pod, gpus) for gpus in choices]
        return choices[scores.index(max(scores))], max(scores)

    def best_fit(self, machine: Machine, pod: Pod, gpus: tuple[int, ...]) -> int:
        asked = pod.gpus * (pod.gpu_memory_mib or 1000)
        cpu, gpu = machine.cpu - pod.cpu_milli, sum(machine.free) - asked
        return int(100 * (1 - (0.5 * (cpu / CORES) + 0.5 * (gpu / GPUS))))

    def dot_product(self, machine: Machine, pod: Pod, gpus: tuple[int, ...]) -> int:
        asked = pod.gpus * (pod.gpu_memory_mib or 1000)
        product = machine.cpu / CORES * (pod.cpu_milli / CORES) + sum(machine.free) / GPUS * (asked / GPUS)
        return int(100 * (1 - product / 2))

    def packing(self, machine: Machine, pod: Pod, gpus: tuple[int, ...]) -> int:
        if not pod.gpus:
            return 0
        unused = machine.free.count(1000)
        if unused == len(machine.free):
            return 33 - unused
        used_unused = sum([machine.free[gpu] == 1000 for gpu in gpus])
        if used_unused:
            return max(50 - used_unused, 33)
        return max(100 - sum([machine.free[gpu] // 10 for gpu in gpus]) // 10, 50)

    def clustering(self, machine: Machine, pod: Pod, gpus: tuple[int, ...]) -> int:
        if not pod.gpus:
            return 0
        same = (0 if pod.gpu_memory_mib else pod.gpus) in machine.classes
        company = (75 if len(machine.classes) == 1 else 50) if same else 0 if machine.classes else 25
        return 25 * (GPUS - sum(machine.free)) // GPUS + company

    def gradient(self, machine: Machine, pod: Pod, gpus: tuple[int, ...]) -> int:
        before = self.fragment(machine)
        machine.put(pod, gpus)
        after = self.fragment(machine)
        machine.put(pod, gpus, -1)
        return int(100 * (1 / (1 + exp(-(before - after) / 1000))))

    def fragment(self, machine: Machine) -> float:
        """By the reason why a typical pod cannot use what is idle: so the sums are those that were published."""
        sums, idle = [0.0] * 6, sum(machine.free)
        for pod, share in self.typical:
            each = pod.gpu_memory_mib or 1000
            enough_cpu = machine.cpu >= pod.cpu_milli
            enough_gpus = sum([free >= each for free in machine.free]) >= pod.gpus
            if not pod.gpus:
                sums[NO_GPU_ASKED if enough_cpu else NO_GPU_ASKED_LACKS_CPU] += share * idle
            elif pod.models and machine.model not in pod.models:
                sums[WRONG_MODEL] += share * idle
            elif enough_gpus and enough_cpu:
                sums[LACKS_GPU] += share * sum([free for free in machine.free if free < each])
            elif enough_gpus:
                sums[LACKS_CPU] += share * idle
            else:
                sums[LACKS_GPU if enough_cpu else LACKS_BOTH] += share * idle
        return sum(sums)


def typical(trace: Trace) -> list[tuple[Pod, float]]:
    """The most frequent kinds of pods, until they are 95 % of all, and the part of those that each is."""
    kinds: dict[tuple[int, int, int, str], list[Pod]] = {}
    for pod in trace.pods:
        each = (pod.gpu_memory_mib or 1000) if pod.gpus else 0
        kinds.setdefault((pod.cpu_milli, each, pod.gpus, "|".join(pod.models)), []).append(pod)
    rest = sorted(kinds, key=lambda kind: (len(kinds[kind]), kind))
    chosen: list[list[Pod]] = []
    while sum(map(len, chosen)) < 0.95 * len(trace.pods):
        chosen.append(kinds[rest.pop()])
    part = sum(map(len, chosen)) / len(trace.pods)
    return [(pods[0], len(pods) / len(trace.pods) / part) for pods in chosen]
