"""What would make the pod fit, in words: the last part of what `why` says.

Pure. Each way of `core.explain.ways_out` is a phrase after "It would fit if". A refusal that is not about free memory
has a sentence of its own, which says who can do something.
"""

from collections.abc import Callable

from gpushare.core.explain import event_texts
from gpushare.core.explain.report import ROOM, Explanation, Holder, NodeView, Way
from gpushare.core.facts import names
from gpushare.view import wording
from gpushare.view.why.text.phrases import pod_name, unit_of

NOT_OURS = "That is kube-scheduler's rule, not GPU memory."
MOST_NAMES = 3  # pods in one phrase
# Cheapest first; one of each kind is enough for a person.
ORDER = ("shrink", "split", "heal", "wait", "end", "evict")

HINTS = {
    "NeedsPolicy": "These nodes take only pods that gpushare's admission policy has prepared (deploy/admission.yaml). "
    "This pod was created without it: delete it and create it again.",
    "PinsByPlugin": "gpushare's admission policy prepared this pod for nodes that pin directly, and no such node can "
    "take it.",
    "OneContainer": "Aliyun's plugin runs there. Ask with one container on one GPU, or run gpushare's plugin there.",
    "NvidiaToo": f"NVIDIA's plugin offers {names.NVIDIA_GPU} there and would give out the same GPUs again: switch it "
    "off on these nodes.",
    "SellsGpus": f"Ask there for what such a node sells ({names.NVIDIA_GPU}), or let gpushare share the node's GPUs: "
    "docs/nodes.md",
    "NoMps": "Start these nodes with --mps-slots, or ask there for what they sell: docs/nodes.md",
    "NotNvidia": f"Start these nodes with --nvidia-gpu=whole, or ask for {names.GPU_COUNT}: docs/nodes.md",
    "PluginDown": "Look at the plugin: kubectl -n kube-system logs -l name=gpushare-device-plugin-ds",
    "Reserved": "An admin keeps these nodes free: their annotation reserved says so, and the policy permits it "
    "(docs/policy-configmap.md). kubectl annotate node NODE reserved- ends that.",
    "OtherNode": "No node that shares GPUs has that name: correct the pod's annotation nodeName, or remove it.",
    "OnlyMps": f"gpushare mps has the GPUs of these nodes, and gives them to its clients only: ask there for "
    f"{names.MPS_GPU} (docs/mps.md)",
    "MpsDown": "It is tried again automatically when the daemon works: docs/mps.md",
    "JustRefused": "kubelet refused such a pod there a moment ago. The node is tried again automatically, within 5 "
    "minutes.",
    "LikeUnderWay": "kubelet cannot tell two identical requests apart. The node is tried again automatically when the "
    "other pod has started.",
    "TooFewGpus": "Ask for fewer GPUs.",
    "OverLimit": "kubelet can report only so many MiB of one container there: ask for less in each container, or let "
    "these nodes pin directly or count in GiB. See docs/device-plugin.md",
    "TooHard": "Ask for GPU memory in fewer containers, or in equal amounts: those are placed quickly.",
    "NoSharedGpu": "Label the nodes that have GPUs with gpushare=true, and check that the plugin runs there: "
    "docs/install.md",
}
POOLED = "kubelet gives the units of init containers to the other containers later: all must be on one GPU."
OTHER_UNIT = 'For {asked} {unit} write "{amount}" and annotation {key}: "{other}".'


def hint(explanation: Explanation) -> str:
    """What helps against a refusal that does not end when another pod ends."""
    request = explanation.request
    if explanation.verdict == "never" and explanation.code in ROOM:
        return POOLED if explanation.code == "NoInitGpu" else event_texts.EVEN_EMPTY
    if explanation.code == "CountsOtherwise" and request is not None and request.unit and len(request.shares) == 1:
        units, gib = request.shares[0].units, request.unit == names.MIB
        amount, other = (-(-units // 1024), names.GIB) if gib else (units * 1024, names.MIB)
        return OTHER_UNIT.format(asked=units, unit=request.unit, amount=amount, key=names.MEMORY_UNIT, other=other)
    return HINTS.get(explanation.code, "")


def phrases(explanation: Explanation) -> list[str]:
    """The phrases after "It would fit if", cheapest first."""
    listed = []
    for kind in ORDER:
        way = next((way for way in explanation.ways if way.way == kind and (kind != "wait" or way.pods)), None)
        if way is not None:
            listed.append(_phrase(way, explanation))
    if not any(way.way in ("end", "evict", "wait") for way in explanation.ways) and (freed := freeing(explanation)):
        listed.append(freed)
    return listed


def _phrase(way: Way, explanation: Explanation) -> str:
    unit, place = unit_of(explanation, way.node), _place(way)
    if way.way == "shrink":
        return f"it asked {way.units} {unit} or less ({place}, {_when(way, explanation, 1)})"
    if way.way == "split":
        return f"it {split(way, explanation)}"
    if way.way == "free":
        return f"{way.units} {unit} were freed on {place}"
    if way.way == "heal":
        return f"{place} came back" if way.gpu is not None else f"all unhealthy GPUs of {place} came back"
    if way.way == "wait":
        ending = _listed(way, lambda holder: pod_name(holder, explanation))
        return f"{ending} on {place} ended ({'it is' if _count(way) == 1 else 'they are'} being deleted already)"
    if way.way == "evict":
        mine = explanation.pod.priority
        lower = _listed(way, lambda holder: f"{pod_name(holder, explanation)} ({holder.priority} < {mine})")
        return f"a lower priority gave way: {lower} on {place} can be evicted"
    return _ended(way, explanation, unit, place)


def split(way: Way, explanation: Explanation) -> str:
    annotation = f'annotation {names.GPU_COUNT}: "{way.gpus}"'
    each = f"{way.units} {unit_of(explanation, way.node)} on each"
    return f"used {way.gpus} GPUs: {annotation} makes it {each} ({way.node}, {_when(way, explanation, way.gpus or 0)})"


def _when(way: Way, explanation: Explanation, gpus: int) -> str:
    """Whether that many GPUs of the node have room now."""
    views = [gpu for view in explanation.nodes if view.name == way.node for gpu in view.gpus]
    return "now" if sum(gpu.healthy and gpu.free >= (way.units or 0) for gpu in views) >= gpus else "once free"


def freeing(explanation: Explanation) -> str:
    """The least that must come free on one GPU."""
    way = next((way for way in explanation.ways if way.way == "free"), None)
    return _phrase(way, explanation) if way is not None else ""


def eviction(explanation: Explanation) -> str:
    """Why eviction does not help; empty if it does, or if the refusal is not about free memory."""
    if explanation.code not in ROOM or explanation.verdict == "never":
        return ""
    if any(way.way == "evict" for way in explanation.ways):
        return ""
    view = next((view for view in explanation.nodes if view.scheduler is None and _is_full(view)), None)
    if view is None:
        return ""
    mine = f"{explanation.pod.name} ({explanation.pod.priority})"
    if not explanation.pod.preempts:
        return f"Eviction does not help: preemptionPolicy of {explanation.pod.name} is Never."
    if not view.lower:
        return f"Eviction does not help: nothing on {view.name} has a lower priority than {mine}."
    return f"Eviction does not help: what has a lower priority than {mine} holds too little on {view.name}."


def kept_for(explanation: Explanation) -> str:
    """Whose turn it is: that of this pod, or of others with a higher priority or a longer wait."""
    if explanation.kept is not None:
        return f"{event_texts.kept(explanation.kept)}."
    mine = f"{explanation.pod.namespace}/"
    named = [name.removeprefix(mine) for name in explanation.before if name]
    rest = len(explanation.before) - len(named[:MOST_NAMES])
    listed = ", ".join(named[:MOST_NAMES]) + (f" and {rest} more" if rest and named else "")
    who = listed or "a pod of another namespace"
    return f"What is free there is kept for {who}, whose turn it is."


def kept_off(explanation: Explanation) -> str:
    """What would have to change for kube-scheduler."""
    taint = next((way.taint for way in explanation.ways if way.way == "tolerate"), None)
    if taint is not None:
        return f"It would fit if it tolerated {taint}. {NOT_OURS}"
    view = next(view for view in explanation.nodes if view.fits)
    refused = view.scheduler
    if refused is None or "; " in refused.message:
        return f"It would fit if none of these rules kept it off {view.name}. {NOT_OURS}"
    would = {
        "Cordoned": f"{view.name} took pods again: kubectl uncordon {view.name}",
        "NodeSelector": f"{view.name} had that label, or it did not ask for it",
        "NodeAffinity": f"{view.name} had such labels, or it did not ask for them",
        "Insufficient": f"that much were free on {view.name}",
    }
    return f"It would fit if {would.get(refused.code, f'nothing kept it off {view.name}')}. {NOT_OURS}"


def _ended(way: Way, explanation: Explanation, unit: str, place: str) -> str:
    count = _count(way)
    first = way.holders[0] if way.holders else None
    held = (
        f" ({first.units} {unit})" if first is not None and first.units else ""
    )  # 0 for whole GPUs that are not known
    which = f"{pod_name(first, explanation)}{held}" if first is not None else ""
    if count == 1:
        return f"{which or 'a pod'} on {place} ended"
    more = f": {which} and {count - 1} more" if which else ""
    return f"one of {wording.count(count, 'pod')} on {place} ended{more}"


def _listed(way: Way, written: Callable[[Holder], str]) -> str:
    holders, count = way.holders or [], _count(way)
    listed = [written(holder) for holder in holders[:MOST_NAMES]]
    rest = count - len(listed)
    if not listed:
        return wording.count(count, "pod")
    if rest:
        return f"{', '.join(listed)} and {rest} more"
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


def _count(way: Way) -> int:
    return way.count or len(way.pods or ())


def _place(way: Way) -> str:
    return str(way.node) if way.gpu is None else f"{way.node} GPU {way.gpu}"


def _is_full(view: NodeView) -> bool:
    return view.gpushare is not None and view.gpushare.code in ROOM
