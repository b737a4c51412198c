"""What the best nodes score, for people: each point says what it is for.

Pure.
"""

from collections.abc import Mapping

from gpushare.core.explain.report import Explanation, GpuScore, NodeScore

MOST_NODES = 5


def lines(explanation: Explanation, *, wide: bool) -> list[str]:
    """Empty if the place was not chosen by points."""
    if not explanation.scores or explanation.policy is None:
        return []
    settings = ", ".join(f"{key} {value}" for key, value in explanation.policy.settings.items())
    first = f"  points by policy {explanation.policy.name}" + (f" ({settings})" if settings else "")
    shown = explanation.scores if wide else explanation.scores[:MOST_NODES]
    width = max(len(node.name) for node in shown)
    return [first, *(f"    {node.name:{width}}  {_score(node, wide)}" for node in shown)]


def _score(node: NodeScore, wide: bool) -> str:
    gpus = [gpu for gpu in node.gpus if gpu.chosen or wide]
    if not node.node and node.gpu_weight == 1 and not node.extra and len(gpus) == 1:
        return f"{node.score:3}  {_gpu(gpus[0])}"
    parts = [f"{node.gpu_weight:g} × {node.points} of its GPUs"]
    if node.node:
        parts.append(f"{node.node_weight:g} × {sum(node.node.values())} ({_terms(node.node)})")
    parts += [f"{node.extra} for several GPUs"] if node.extra else []
    return f"{node.score:3} = {' + '.join(parts)}; {'; '.join(map(_gpu, gpus))}"


def _gpu(gpu: GpuScore) -> str:
    return f"GPU {gpu.gpu}: {gpu.points} ({_terms(gpu.terms)})"


def _terms(terms: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {points}" for name, points in terms.items())
