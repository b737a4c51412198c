"""Pods that are bound or have ended: where they run, beside which pods, why they have not started, how they ended.

Pure.
"""

from gpushare.core.explain import report
from gpushare.core.explain.event_texts import gpu_list, slots_in_words
from gpushare.core.explain.report import Explanation, Spot
from gpushare.view.usage import UNASKED, UNUSABLE
from gpushare.view.why.text.phrases import pod_name, shares_of, unit_of

MOST_NAMES = 5  # of pods on the same GPU
KUBELETS_PART = "That is kubelet's part, not GPU memory."
DELETING = "It is being deleted. Its GPU memory comes free when its containers have ended."


def lines(explanation: Explanation, who: str) -> list[str]:
    """One line, and one more for each GPU if it has several."""
    if explanation.code == report.ENDED:
        why = f": {explanation.detail}" if explanation.detail else ""
        return [f"{who} {explanation.message}{why}. It holds no GPU memory any more."]
    placed = _placed(explanation, who)
    return [*placed, f"  {DELETING}"] if explanation.pod.deleting else placed


def _placed(explanation: Explanation, who: str) -> list[str]:
    node, unit = explanation.pod.node or "", unit_of(explanation)
    if not explanation.has:
        return [_without_gpu(explanation, who, node, unit)]
    gpus, amounts = f"{node} {gpu_list([spot.gpu for spot in explanation.has])}", _amounts(explanation, unit)
    if explanation.owner == report.KUBELET:
        return [f"{who} has {gpus} ({amounts}), but {explanation.detail}. {KUBELETS_PART}"]
    first = f"{who} runs on {gpus}: {amounts} ({_containers(explanation)})."
    if len(explanation.has) == 1:
        return [f"{first} {_neighbours(explanation, explanation.has[0], unit)}".rstrip()]
    others = ((spot.gpu, _neighbours(explanation, spot, unit)) for spot in explanation.has)
    return [first, *(f"  GPU {gpu}: {text[0].lower()}{text[1:]}" for gpu, text in others if text)]


def _without_gpu(explanation: Explanation, who: str, node: str, unit: str) -> str:
    if explanation.detail in (UNASKED, UNUSABLE):
        amount = sum(share.units for share in shares_of(explanation))
        held = f" ({amount} {unit})" if amount else ""
        return f"{who} is bound to {node} without a GPU{held}: {explanation.detail}"
    verb = "runs on" if explanation.owner == report.GPUSHARE else "is bound to"
    why = f", but {explanation.detail}" if explanation.detail else ""
    owner = f" {KUBELETS_PART}" if explanation.owner == report.KUBELET and why else ""
    return f"{who} {verb} {node}{why}.{owner}"


def _amounts(explanation: Explanation, unit: str) -> str:
    shares = shares_of(explanation)
    whole = bool(shares) and all(share.whole for share in shares)
    amounts = [_amount(spot, unit) for spot in explanation.has]
    if len(amounts) == 1:
        return f"the whole GPU, {amounts[0]}" if whole else amounts[0]
    if len(set(amounts)) == 1:
        return f"{amounts[0]} on each"
    if any(spot.slots for spot in explanation.has):
        return ", ".join(f"{amount} on GPU {spot.gpu}" for amount, spot in zip(amounts, explanation.has, strict=True))
    return " and ".join(str(spot.units) for spot in explanation.has) + f" {unit}"


def _amount(spot: Spot, unit: str) -> str:
    return f"{slots_in_words(spot.slots)} and {spot.units} {unit}" if spot.slots else f"{spot.units} {unit}"


def _containers(explanation: Explanation) -> str:
    listed = [share.container for share in shares_of(explanation)]
    return f"container {listed[0]}" if len(listed) == 1 else f"containers {', '.join(listed)}"


def _neighbours(explanation: Explanation, spot: Spot, unit: str) -> str:
    """Who else is on a GPU, and what is left of it."""
    if spot.free is None or spot.total is None or spot.units == spot.total:
        return ""
    gpu = next((gpu for view in explanation.nodes for gpu in view.gpus if gpu.index == spot.gpu), None)
    others = [holder for holder in explanation.beside if holder.gpu == spot.gpu]
    named = [f"{pod_name(holder, explanation)} {holder.units}" for holder in others[:MOST_NAMES]]
    rest = (gpu.pods if gpu is not None else 1) - 1 - len(named)
    if rest > 0:
        named.append(f"{rest} more" if not named else f"and {rest} more")
    who = f"With it there: {', '.join(named)}".replace(", and ", " and ") if named else "No other pod is there"
    slots = f" and {gpu.free_slots} of {gpu.slots} MPS slots" if spot.slots and gpu is not None and gpu.slots else ""
    return f"{who}; {spot.free} of {spot.total} {unit}{slots} are left."
