"""What would make it fit, in words: the last part of what `why` says.

Pure. Each way of `core.explain.ways_out` is a phrase after "It would fit if"; refusals that are not about room have a
sentence of their own that says whose turn it is.
"""

from collections.abc import Callable

from gpushare.core.explain import event_texts
from gpushare.core.explain.report import ROOM, Explanation, Holder, NodeView, Way
from gpushare.core.facts import names
from gpushare.ctl.why.text.node_table import counted, one_share

NOT_OURS = "That is kube-scheduler's rule, not GPU memory."
MOST_NAMES = 3  # pods in one phrase
# One of each kind is enough for a person.
ORDER = ("shrink", "split", "heal", "wait", "end", "evict")

HINTS = {
    "NeedsPolicy": "These nodes take pods that gpushare's admission policy has seen (deploy/admission.yaml); this one "
    "was created without it: delete it and create it again.",
    "PinsByPlugin": "gpushare's admission policy made this pod for nodes that pin directly, and none of those can take "
    "it.",
    "OneContainer": "Aliyun's plugin can serve nothing else: ask with one container on one GPU, or run gpushare's "
    "plugin there.",
    "NvidiaToo": f"NVIDIA's plugin offers {names.NVIDIA_GPU} there and would hand out the same GPUs again: switch it "
    "off on these nodes.",
    "PluginDown": "Look at the plugin: kubectl -n kube-system logs -l name=gpushare-device-plugin-ds",
    "JustRefused": "kubelet refused such a pod there a moment ago. It is tried again by itself, within 5 minutes.",
    "LikeUnderWay": "kubelet could not tell the two apart. It is tried again by itself once the other has started.",
    "TooFewGpus": "Ask for fewer GPUs.",
    "TooHard": "Ask for GPU memory in fewer containers, or in equal amounts: those are placed quickly.",
    "NoSharedGpu": "Label the nodes that have GPUs gpushare=true, and see that the plugin runs there: docs/install.md",
}
POOLED = "kubelet hands the units of init containers on to the others: with a device plugin all must be on one GPU."
OTHER_UNIT = 'For {asked} {unit} write "{amount}" and annotation {key}: "{other}".'


def hint(said: Explanation) -> str:
    """For a refusal that no other pod can end by going."""
    asked = said.request
    if said.verdict == "never" and said.code in ROOM:
        return POOLED if said.code == "NoInitGpu" else event_texts.EVEN_EMPTY
    if said.code == "CountsOtherwise" and asked is not None and asked.unit and len(asked.shares) == 1:
        units, gib = asked.shares[0].units, asked.unit == names.MIB
        amount, other = (-(-units // 1024), names.GIB) if gib else (units * 1024, names.MIB)
        return OTHER_UNIT.format(asked=units, unit=asked.unit, amount=amount, key=names.MEMORY_UNIT, other=other)
    return HINTS.get(said.code, "")


def ways(said: Explanation) -> list[str]:
    """The phrases after "It would fit if", cheapest first."""
    phrases = []
    for kind in ORDER:
        found = next((way for way in said.ways if way.way == kind and (kind != "wait" or way.pods)), None)
        if found is not None:
            phrases.append(phrase(found, said))
    if not any(way.way in ("end", "evict", "wait") for way in said.ways) and (freed := freeing(said)):
        phrases.append(freed)
    return phrases


def phrase(way: Way, said: Explanation) -> str:
    unit, place = unit_of(said, way.node), _place(way)
    if way.way == "shrink":
        return f"it asked {way.units} {unit} or less ({place}, {_when(way, said, 1)})"
    if way.way == "split":
        return f"it {split(way, said)}"
    if way.way == "heal":
        return f"{place} came back" if way.gpu is not None else f"all unhealthy GPUs of {place} came back"
    if way.way == "wait":
        going = _named(way, lambda holder: _name(holder, said))
        return f"{going} on {place} were gone, which {'is' if _count(way) == 1 else 'are'} being deleted already"
    if way.way == "evict":
        mine = said.pod.priority
        lower = _named(way, lambda holder: f"{_name(holder, said)} ({holder.priority} < {mine})")
        return f"a lower priority gave way: {lower} on {place} can be evicted"
    return _ended(way, said, unit, place)


def split(way: Way, said: Explanation) -> str:
    when = _when(way, said, way.gpus or 0)
    note = f'annotation {names.GPU_COUNT}: "{way.gpus}"'
    return f"used {way.gpus} GPUs: {note} makes it {way.units} {unit_of(said, way.node)} on each ({way.node}, {when})"


def _when(way: Way, said: Explanation, gpus: int) -> str:
    """Whether as many GPUs of the node have the room now."""
    views = [gpu for view in said.nodes if view.name == way.node for gpu in view.gpus]
    return "now" if sum(gpu.healthy and gpu.free >= (way.units or 0) for gpu in views) >= gpus else "once free"


def freeing(said: Explanation) -> str:
    """The least that has to come free on one GPU: for requests of one share only."""
    asked = said.request
    if asked is None or not one_share(asked.shares):
        return ""
    gpus = [
        (gpu.short or 0, view, gpu)
        for view in said.nodes
        if view.scheduler is None and view.gpushare is not None and view.gpushare.code in ROOM
        for gpu in view.gpus
        if gpu.healthy and gpu.total >= asked.shares[0].units and gpu.short
    ]
    if not gpus:
        return ""
    short, view, gpu = min(gpus, key=lambda row: row[0])
    return f"{short} {view.unit} were freed on {view.name} GPU {gpu.index}"


def eviction(said: Explanation) -> str:
    """Why nobody can be made to give way; empty if somebody can, or if that is not what it is about."""
    if said.code not in ROOM or said.verdict == "never" or any(way.way == "evict" for way in said.ways):
        return ""
    view = next((view for view in said.nodes if view.scheduler is None and _is_full(view)), None)
    if view is None:
        return ""
    mine = f"{said.pod.name} ({said.pod.priority})"
    if not said.pod.preempts:
        return f"Eviction does not help: preemptionPolicy of {said.pod.name} is Never."
    if not view.lower:
        return f"Eviction does not help: nothing on {view.name} has a lower priority than {mine}."
    return f"Eviction does not help: what has a lower priority than {mine} holds too little on {view.name}."


def kept_for(said: Explanation) -> str:
    """Whose turn it is: its own, or that of others: more important, or for longer."""
    if said.kept is not None:
        return f"{event_texts.kept(said.kept)}."
    mine = f"{said.pod.namespace}/"
    named = [name.removeprefix(mine) for name in said.before if name]
    rest = len(said.before) - len(named[:MOST_NAMES])
    listed = ", ".join(named[:MOST_NAMES]) + (f" and {rest} more" if rest and named else "")
    who = listed or "a pod of another namespace"
    return f"What is free there is kept for {who}, whose turn it is."


def kept_off(said: Explanation) -> str:
    """What kube-scheduler would have to be told."""
    taint = next((way.taint for way in said.ways if way.way == "tolerate"), None)
    if taint is not None:
        return f"It would fit if it tolerated {taint}. {NOT_OURS}"
    view = next(view for view in said.nodes if view.fits)
    refused = view.scheduler
    if refused is None or "; " in refused.message:
        return f"It would fit if nothing of that kept it off {view.name}. {NOT_OURS}"
    would = {
        "Cordoned": f"{view.name} took pods again: kubectl uncordon {view.name}",
        "NodeSelector": f"{view.name} had that label, or it did not ask for it",
        "NodeAffinity": f"{view.name} had such labels, or it did not ask for them",
        "Insufficient": f"that much were free on {view.name}",
    }
    return f"It would fit if {would.get(refused.code, f'nothing kept it off {view.name}')}. {NOT_OURS}"


def unit_of(said: Explanation, node: str | None = None) -> str:
    """What amounts are counted in on a node or, if none is named, what the request means."""
    units = [view.unit for view in said.nodes if view.unit and (node is None or view.name == node)]
    of_nodes = units[0] if units else None
    asked = said.request.unit if said.request is not None else None
    return (asked or of_nodes if node is None else of_nodes or asked) or names.MIB


def _ended(way: Way, said: Explanation, unit: str, place: str) -> str:
    count = _count(way)
    first = way.holders[0] if way.holders else None
    held = f" ({first.units} {unit})" if first is not None and first.units else ""  # whole GPUs nobody knows hold none
    which = f"{_name(first, said)}{held}" if first is not None else ""
    if count == 1:
        return f"{which or 'a pod'} on {place} ended"
    more = f": {which} and {count - 1} more" if which else ""
    return f"one of {counted(count, 'pod')} on {place} ended{more}"


def _named(way: Way, written: Callable[[Holder], str]) -> str:
    holders, count = way.holders or [], _count(way)
    listed = [written(holder) for holder in holders[:MOST_NAMES]]
    rest = count - len(listed)
    if not listed:
        return counted(count, "pod")
    if rest:
        return f"{', '.join(listed)} and {rest} more"
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


def _count(way: Way) -> int:
    return way.count or len(way.pods or ())


def _name(holder: Holder, said: Explanation) -> str:
    """Pods of one's own namespace need no namespace."""
    return holder.pod.removeprefix(f"{said.pod.namespace}/")


def _place(way: Way) -> str:
    return str(way.node) if way.gpu is None else f"{way.node} GPU {way.gpu}"


def _is_full(view: NodeView) -> bool:
    return view.gpushare is not None and view.gpushare.code in ROOM
