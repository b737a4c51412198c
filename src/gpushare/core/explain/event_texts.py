"""The texts of our events, as people read them in `kubectl describe pod`: place and way out, in at most 200 characters.

Pure. One sentence per situation, in the same words as the refusals of `fit` and `request`.
"""

from collections.abc import Collection, Sequence
from typing import Final

from gpushare.core.explain import survey
from gpushare.core.explain.report import ROOM, KeptView
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Refusal, Request, Share
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from gpushare.core.steps import Steps, finish

LONGEST = 200
LONGEST_NAME = 40
MOST_LISTED = 4  # GPUs of one place; more are counted
ASSIGNED = "GPUAssigned"
NO_GPU_FITS = "NoGPUFits"
NEVER_FITS = "NeverFits"
INVALID = "InvalidGPURequest"
GPU_KEPT = "GPUKept"
SECOND_EXTENDER = "SecondExtender"
MIXED_UNITS = "MixedUnits"
BOUND_BY_HAND = "BoundByHand"
# Problems that the audit of a node reports. What each means without any name, for readers who may not see those pods.
OVERCOMMITTED: Final = "GPUOvercommitted"
WRONG_GPU: Final = "WrongGPU"
NVIDIA_TOO: Final = "NvidiaPluginToo"
UNIT_KEPT: Final = "UnitKept"
OTHER_UNIT: Final = "OtherUnit"
UNASKED_GPU: Final = "UnaskedGPU"
TOO_SMALL: Final = "GPUTooSmall"
AUDIT_MEANINGS: Final = {
    OVERCOMMITTED: "the pods of a GPU hold more than it has",
    WRONG_GPU: "a container sees another GPU than the one its pod is counted on",
    NVIDIA_TOO: "NVIDIA's device plugin also gives out this node's GPUs; nothing new is sent here",
    UNIT_KEPT: "the node still counts in another unit than it is configured to, because of pods that are there",
    OTHER_UNIT: "a pod was given GPU memory in another unit than the node counts in now",
    BOUND_BY_HAND: "a pod was not bound by gpushare",
    UNASKED_GPU: "a container can see GPUs that its pod did not ask for",
    TOO_SMALL: "a GPU has less than one unit to give out, so no pod can use it",
}
AUDIT_CODES: Final = tuple(AUDIT_MEANINGS)
SEES_NONE = "it sees no GPU and counts on none"
COUNTS_ON_ALL = "its GPU is not known, so it counts on every GPU"
NO_NODE = "No node of this cluster shares a GPU: none publishes one, and none offers aliyun.com/gpu-mem."
NONE_ALLOWED = "No node it may use (nodeSelector, affinity, taints) shares a GPU."
NONE_NAMED = "No node that shares a GPU is called {node} (annotation nodeName)."
EVEN_EMPTY = "It would not fit even if all GPUs were healthy and free: ask for less, or use several pods."
SOME_ALLOWED = "It may use {allowed} of {nodes} GPU nodes: {message}"


def short_name(name: str) -> str:
    """A long name without its middle: names differ at the ends."""
    return name if len(name) <= LONGEST_NAME else f"{name[:13]}…{name[-6:]}"


def bound_by_hand(pod: PodFacts, what: str) -> str:
    """An event of the node: the pod's owner bound it there. `what`: SEES_NONE or COUNTS_ON_ALL."""
    name = f"{short_name(pod.namespace)}/{short_name(pod.name)}"
    return cut(f"Pod {name} was not bound by gpushare: {what}. Delete it, and create it without nodeName.")


def assigned(facts: NodeFacts, request: Request, places: Places, left: Sequence[int]) -> str:
    """Where a pod went. `left`: free units of each GPU of the node with the pod there."""
    node = short_name(facts.name)
    if len(request.shares) == 1 and len(places[0]) == 1:
        return _one_gpu(node, facts, request.shares[0], places[0][0], left)
    if len(request.shares) == 1:
        share = request.shares[0]
        return cut(f"{node}: {_gpus(facts, places[0])}, {_amount(share, facts)} for {share.container}.")
    placed = [(share, chosen) for share, chosen in zip(request.shares, places, strict=True) if chosen]
    parts = [f"{_gpus(facts, chosen)} {_amount(share, facts)} for {share.container}" for share, chosen in placed]
    return cut(f"{node}: {', '.join(parts)}.")


def _one_gpu(node: str, facts: NodeFacts, share: Share, gpu: int, left: Sequence[int]) -> str:
    chosen, container = facts.gpus[gpu], share.container
    if share.kind.exclusive:
        return f"{node} GPU {chosen.index}: the whole GPU ({chosen.total} {facts.unit}) for {container}."
    rest = f"{left[gpu]} of {chosen.total} {facts.unit} left"
    amount = f"{'an MPS slot and ' if share.kind.slots else ''}{share.on(chosen, facts)} {facts.unit}"
    return f"{node} GPU {chosen.index}: {amount} for {container}; {rest}."


def _gpus(facts: NodeFacts, chosen: tuple[int, ...]) -> str:
    return gpu_list([facts.gpus[gpu].index for gpu in chosen])


def gpu_list(indexes: Sequence[int]) -> str:
    if len(indexes) <= 2:
        return " and ".join(f"GPU {index}" for index in indexes)
    return f"GPUs {', '.join(map(str, indexes[:-1]))} and {indexes[-1]}"


def slots_in_words(count: int) -> str:
    return "an MPS slot" if count == 1 else f"{count} MPS slots"


def _amount(share: Share, facts: NodeFacts) -> str:
    if share.kind.exclusive:
        return "wholly"
    if share.kind.slots:
        each = share.each_in(facts.unit)
        return f"an MPS slot{f' and {each} {facts.unit}' if each else ''}{' each' if share.gpus > 1 else ''}"
    return f"{share.each} {facts.unit} each" if share.gpus > 1 else f"{share.units} {facts.unit}"


def warning(ledger: Ledger, pod: PodFacts, among: Collection[str] | None = None) -> tuple[str, str] | None:
    """Reason and text of the Warning about a waiting pod; None if it does not wait for GPU memory. `among`: the nodes
    that it may use, GPUs aside. The text is about these, and says so if there are others."""
    return finish(warning_steps(ledger, pod, among, cost.UNHURRIED_LOOKS))


def warning_steps(
    ledger: Ledger, pod: PodFacts, among: Collection[str] | None, looks: int
) -> Steps[tuple[str, str] | None]:
    """The same in short steps. `looks`: what one step may cost."""
    request = pod.request
    if isinstance(request, Refusal):
        return INVALID, cut(f"{request.message}: {request.detail}" if request.detail else f"{request.message}.")
    if not isinstance(request, Request):
        return None
    answers = yield from survey.surveying(ledger, pod, among, looks)
    verdict, refusal = survey.verdict_of(answers)
    if refusal is None:
        return None
    nodes = sum(1 for _ in ledger.rooms())
    more = f" More: kubectl gpushare why {short_name(pod.name)} -n {short_name(pod.namespace)}"
    if not answers:
        named = pod.only_node and ledger.facts(pod.only_node) is None
        none = NONE_NAMED.format(node=short_name(pod.only_node)) if named else NONE_ALLOWED
        none += more if len(none + more) <= LONGEST else ""
        return (NO_GPU_FITS, none) if nodes else (NEVER_FITS, NO_NODE)
    message, reason = capital(refusal.message), NEVER_FITS if verdict == "never" else NO_GPU_FITS
    if len(answers) < nodes:
        message = SOME_ALLOWED.format(allowed=len(answers), nodes=nodes, message=refusal.message)
        if verdict == "never":  # labels, taints and cordons come and go: NeverFits is for what fits no node at all
            everywhere = yield from survey.surveying(ledger, pod, None, looks)
            reason = NEVER_FITS if survey.verdict_of(everywhere)[0] == "never" else NO_GPU_FITS
    if verdict == "never":
        return reason, cut(message + _never(ledger, request, refusal, [name for name, _ in answers]))
    text = f"{message}.{_closest(ledger, pod, request, answers[0][0], refusal)}"
    return reason, text + more if len(text + more) <= LONGEST else cut(text)


def _closest(ledger: Ledger, pod: PodFacts, request: Request, node: str, refusal: Refusal) -> str:
    """The GPU that lacks least. Nothing if the node has changed since it was asked."""
    state = ledger.node(node)
    room = state.room_for(pod) if state is not None else None
    if room is None or not request.one_share:
        return ""
    need = request.shares[0].units
    if refusal.code == "NoHealthyGpu":
        return _unhealthy(room, need)
    free = room.rising[-1] if room.rising else need
    if free >= need:
        return ""
    gpu = next(g for g, f in zip(room.facts.gpus, room.free, strict=True) if f == free and g.healthy)
    where = f"{short_name(node)} GPU {gpu.index}"
    return f" Closest: {where}, {free} of {gpu.total} {room.facts.unit} free, {need - free} short."


def _unhealthy(room: Room, need: int) -> str:
    """The unhealthy GPU that has room. Nothing if it is healthy again."""
    for gpu, free in zip(room.facts.gpus, room.free, strict=True):
        if free >= need and not gpu.healthy:
            where = f"{short_name(room.facts.name)} GPU {gpu.index}"
            return f" {where} has {free} of {gpu.total} {room.facts.unit} free, but is unhealthy."
    return ""


def _never(ledger: Ledger, request: Request, refusal: Refusal, nodes: Collection[str]) -> str:
    """What could be asked instead of what can never fit."""
    if refusal.code in ROOM:
        return f". {EVEN_EMPTY}"
    rooms, question = [state.room for name in nodes if (state := ledger.node(name)) is not None], Question(request)
    able = [room for room in rooms if room is not None and question.off_limits(room.facts) is None]
    if refusal.code != "TooLarge" or not able:
        return "."
    largest = max(able, key=lambda room: room.largest)
    size = f"the largest is {largest.largest} {largest.facts.unit} ({short_name(largest.facts.name)})"
    if any(share.kind.slots for share in request.shares):
        return f"; {size}. Ask less."
    return f"; {size}. Ask less, or several GPUs: annotation aliyun.com/gpu-count."


def kept(view: KeptView) -> str:
    """What is kept for a pod that has waited too long."""
    node, many = short_name(view.node), len(view.gpus) > MOST_LISTED
    place = f"{len(view.gpus)} GPUs of {node}" if many else f"{node} {gpu_list(view.gpus)}"
    are, there = ("is", "there") if len(view.gpus) == 1 else ("are", "on them")
    missing = [f"{view.short} {view.unit}"] * bool(view.short) + [slots_in_words(view.slots)] * bool(view.slots)
    rest = f"{' and '.join(missing)} must still come free {there}" if missing else "all it asks is free there"
    return f"{place} {are} kept for it: {rest}"


def turn(view: KeptView, waited: float) -> str:
    """The event of a pod whose turn has come. `waited`: seconds."""
    time = f"{waited / 60:.0f} minutes" if waited >= 120 else f"{waited:.0f} seconds"
    return cut(f"Waiting for {time}: {kept(view)}.")


def capital(sentence: str) -> str:
    """With a capital letter at the start, unless the sentence starts with a key."""
    word = sentence.split(" ", 1)[0]
    return sentence if "/" in word or "(" in word else sentence[:1].upper() + sentence[1:]


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
