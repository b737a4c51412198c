"""Pods that have their place: where they run, beside whom, why they have not started, how they ended.

Pure. The part of `whytext` for pods that nothing is to be found out for.
"""

from gpushare.core.explain import report
from gpushare.core.explain.event_texts import gpu_list
from gpushare.core.explain.report import Explanation, Holder, Spot
from gpushare.ctl.why.text.ways import unit_of
from gpushare.view.usage import UNASKED, UNUSABLE

MOST_NAMES = 5  # of those on the same GPU
KUBELETS_PART = "That is kubelet's part, not GPU memory."
DELETING = "It is being deleted; what it holds comes free when its containers have ended."


def runs(said: Explanation, who: str) -> list[str]:
    """One line, and one more for each GPU if it has several."""
    if said.code == report.ENDED:
        why = f": {said.detail}" if said.detail else ""
        return [f"{who} {said.message}{why}. It holds no GPU memory any more."]
    lines = _placed(said, who)
    return [*lines, f"  {DELETING}"] if said.pod.deleting else lines


def _placed(said: Explanation, who: str) -> list[str]:
    node, unit = said.pod.node or "", unit_of(said)
    if not said.has:
        return [_without_gpu(said, who, node, unit)]
    if said.owner == report.KUBELET:
        return [f"{who} has {_gpus(said, node)} ({_amounts(said, unit)}), but {said.detail}. {KUBELETS_PART}"]
    first = f"{who} runs on {_gpus(said, node)}: {_amounts(said, unit)} ({_containers(said)})."
    if len(said.has) == 1:
        return [f"{first} {_company(said, said.has[0], unit)}".rstrip()]
    more = ((spot, _company(said, spot, unit)) for spot in said.has)
    return [first, *(f"  GPU {spot.gpu}: {company[0].lower()}{company[1:]}" for spot, company in more if company)]


def _without_gpu(said: Explanation, who: str, node: str, unit: str) -> str:
    if said.detail in (UNASKED, UNUSABLE):
        amount = sum(share.units for share in said.request.shares) if said.request is not None else 0
        held = f" ({amount} {unit})" if amount else ""
        return f"{who} is bound to {node} without a GPU{held}: {said.detail}"
    verb = "runs on" if said.owner == report.GPUSHARE else "is bound to"
    why = f", but {said.detail}" if said.detail else ""
    owner = f" {KUBELETS_PART}" if said.owner == report.KUBELET and why else ""
    return f"{who} {verb} {node}{why}.{owner}"


def _gpus(said: Explanation, node: str) -> str:
    return f"{node} {gpu_list([spot.gpu for spot in said.has])}"


def _amounts(said: Explanation, unit: str) -> str:
    whole = said.request is not None and all(share.whole for share in said.request.shares)
    amounts = [spot.units for spot in said.has]
    if len(amounts) == 1:
        return f"the whole GPU, {amounts[0]} {unit}" if whole else f"{amounts[0]} {unit}"
    if len(set(amounts)) == 1:
        return f"{amounts[0]} {unit} on each"
    return " and ".join(map(str, amounts)) + f" {unit}"


def _containers(said: Explanation) -> str:
    listed = [share.container for share in said.request.shares] if said.request is not None else []
    return f"container {listed[0]}" if len(listed) == 1 else f"containers {', '.join(listed)}"


def _company(said: Explanation, spot: Spot, unit: str) -> str:
    """Who else is on a GPU, and what is left of it."""
    if spot.free is None or spot.total is None or spot.units == spot.total:
        return ""
    there = next((gpu.pods for view in said.nodes for gpu in view.gpus if gpu.index == spot.gpu), 1)
    others = [holder for holder in said.beside if holder.gpu == spot.gpu]
    named = [f"{_name(holder, said)} {holder.units}" for holder in others[:MOST_NAMES]]
    rest = there - 1 - len(named)
    if rest > 0:
        named.append(f"{rest} more" if not named else f"and {rest} more")
    who = f"With it there: {', '.join(named)}".replace(", and ", " and ") if named else "Nobody else is there"
    return f"{who}; {spot.free} of {spot.total} {unit} are left."


def _name(holder: Holder, said: Explanation) -> str:
    return holder.pod.removeprefix(f"{said.pod.namespace}/")
