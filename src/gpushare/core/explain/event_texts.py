"""The events people read under `kubectl describe pod`: place and way out, in at most 200 characters.

Pure. One sentence per situation, in the same words as the refusals of `fit` and `request`.
"""

from collections.abc import Collection, Sequence

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
SEES_NONE = "it sees no GPU and counts on none"
COUNTS_ON_ALL = "nobody knows its GPU, it counts on every one"
NO_NODE = "No node of this cluster shares a GPU: none publishes one, and none offers aliyun.com/gpu-mem."
NONE_ALLOWED = "No node it may use (nodeSelector, affinity, taints) shares a GPU."
EVEN_EMPTY = "It would not fit even if all GPUs were healthy and free: ask for less, or use several pods."
SOME_ALLOWED = "It may use {allowed} of {nodes} GPU nodes: {message}"


def short_name(name: str) -> str:
    """Long names lose their middle: the ends tell them apart."""
    return name if len(name) <= LONGEST_NAME else f"{name[:13]}…{name[-6:]}"


def bound_by_hand(pod: PodFacts, what: str) -> str:
    """For the node, because it was the pod's owner who did it. `what` comes of it: see above."""
    name = f"{short_name(pod.namespace)}/{short_name(pod.name)}"
    return cut(f"Pod {name} was not bound by gpushare: {what}. Delete it, and create it without nodeName.")


def assigned(facts: NodeFacts, request: Request, places: Places, left: list[int]) -> str:
    """Where a pod went. `left`: free units of each GPU of the node with the pod there."""
    node = short_name(facts.name)
    if len(request.shares) == 1 and len(places[0]) == 1:
        return _one_gpu(node, facts, request.shares[0], places[0][0], left)
    if len(request.shares) == 1:
        share = request.shares[0]
        return cut(f"{node}: {_gpus(facts, places[0])}, {_amount(share, facts)} for {share.container}.")
    stays = [(s, chosen) for s, chosen in zip(request.shares, places, strict=True) if chosen]
    said = [f"{_gpus(facts, chosen)} {_amount(share, facts)} for {share.container}" for share, chosen in stays]
    return cut(f"{node}: {', '.join(said)}.")


def _one_gpu(node: str, facts: NodeFacts, share: Share, gpu: int, left: list[int]) -> str:
    chosen = facts.gpus[gpu]
    if share.kind.exclusive:
        return f"{node} GPU {chosen.index}: the whole GPU ({chosen.total} {facts.unit}) for {share.container}."
    rest = f"{left[gpu]} of {chosen.total} {facts.unit} left"
    return f"{node} GPU {chosen.index}: {share.units} {facts.unit} for {share.container}; {rest}."


def _gpus(facts: NodeFacts, chosen: tuple[int, ...]) -> str:
    return gpu_list([facts.gpus[gpu].index for gpu in chosen])


def gpu_list(indexes: Sequence[int]) -> str:
    if len(indexes) <= 2:
        return " and ".join(f"GPU {index}" for index in indexes)
    return f"GPUs {', '.join(map(str, indexes[:-1]))} and {indexes[-1]}"


def _amount(share: Share, facts: NodeFacts) -> str:
    if share.kind.exclusive:
        return "wholly"
    return f"{share.each} {facts.unit} each" if share.gpus > 1 else f"{share.units} {facts.unit}"


def waiting(ledger: Ledger, pod: PodFacts, among: Collection[str] | None = None) -> tuple[str, str] | None:
    """What `telling` comes to, at once."""
    return finish(telling(ledger, pod, among, cost.UNHURRIED_LOOKS))


def telling(ledger: Ledger, pod: PodFacts, among: Collection[str] | None, looks: int) -> Steps[tuple[str, str] | None]:
    """Reason and text of the Warning a waiting pod deserves; None if GPU memory is not what it waits for. `among`: the
    nodes it may use, GPUs aside; the reason is theirs, and says so where there are others."""
    if isinstance(pod.request, Refusal):
        return INVALID, cut(
            f"{pod.request.message}: {pod.request.detail}" if pod.request.detail else f"{pod.request.message}."
        )
    if not isinstance(pod.request, Request):
        return None
    found = yield from survey.surveying(ledger, pod, among, looks)
    outcome, refused = survey.verdict_of(found)
    if refused is None:
        return None
    nodes = sum(1 for _ in ledger.rooms())
    more = f" More: kubectl gpushare why {short_name(pod.name)} -n {short_name(pod.namespace)}"
    if not found:
        return (NO_GPU_FITS, f"{NONE_ALLOWED}{more}") if nodes else (NEVER_FITS, NO_NODE)
    said, reason = capital(refused.message), NEVER_FITS if outcome == "never" else NO_GPU_FITS
    if len(found) < nodes:
        said = SOME_ALLOWED.format(allowed=len(found), nodes=nodes, message=refused.message)
        # Labels, taints and cordons come and go: only what no node at all can ever do is a "never".
        everywhere = yield from survey.surveying(ledger, pod, None if outcome == "never" else (), looks)
        never = outcome == "never" and survey.verdict_of(everywhere)[0] == "never"
        reason = NEVER_FITS if never else NO_GPU_FITS
    if outcome == "never":
        return reason, cut(f"{said}{_largest(ledger, pod.request, refused, [name for name, _ in found])}")
    text = f"{said}.{_closest(ledger, pod, found[0][0], refused)}"
    return reason, text + more if len(text + more) <= LONGEST else cut(text)


def kept(said: KeptView) -> str:
    """What is kept for a pod that has waited long."""
    node, many = short_name(said.node), len(said.gpus) > MOST_LISTED
    place = f"{len(said.gpus)} GPUs of {node}" if many else f"{node} {gpu_list(said.gpus)}"
    are, there = ("is", "there") if len(said.gpus) == 1 else ("are", "on them")
    rest = f"{said.short} {said.unit} must still come free {there}" if said.short else "all it asks is free there"
    return f"{place} {are} kept for it: {rest}"


def turn(said: KeptView, waited: float) -> str:
    """The event of a pod whose turn has come. `waited`: seconds."""
    time = f"{waited / 60:.0f} minutes" if waited >= 120 else f"{waited:.0f} seconds"
    return cut(f"Waiting for {time}: {kept(said)}.")


def _closest(ledger: Ledger, pod: PodFacts, node: str, refused: Refusal) -> str:
    """Nothing, if that is not so any more: nodes change while all of them are looked at."""
    state = ledger.node(node)
    room = state.room_for(pod) if state is not None else None
    assert isinstance(pod.request, Request)
    if room is None or not pod.request.one_share:
        return ""
    need = pod.request.shares[0].units
    if refused.code == "NoHealthyGpu":
        return _sick(room, need)
    if not room.rising:
        return ""
    free = room.rising[-1]
    gpu = next(g for g, f in zip(room.facts.gpus, room.free, strict=True) if f == free and g.healthy)
    if free >= need:
        return ""
    where = f"{short_name(node)} GPU {gpu.index}"
    return f" Closest: {where}, {free} of {gpu.total} {room.facts.unit} free, {need - free} short."


def _sick(room: Room, need: int) -> str:
    """The unhealthy GPU that would do; nothing, if it is healthy again."""
    facts = room.facts
    would_do = [(g, f) for g, f in zip(facts.gpus, room.free, strict=True) if f >= need and not g.healthy]
    if not would_do:
        return ""
    gpu, free = would_do[0]
    has = f"{free} of {gpu.total} {facts.unit} free"
    return f" {short_name(facts.name)} GPU {gpu.index} has {has}, but is unhealthy."


def _largest(ledger: Ledger, request: Request, refused: Refusal, among: Collection[str]) -> str:
    if refused.code in ROOM:
        return f". {EVEN_EMPTY}"
    if refused.code != "TooLarge":
        return "."
    rooms, question = [state.room for name in among if (state := ledger.node(name)) is not None], Question(request)
    able = [room for room in rooms if room is not None and question.off_limits(room.facts) is None]
    if not able:
        return "."
    largest = max(able, key=lambda room: room.largest)
    size = f"the largest is {largest.largest} {largest.facts.unit} ({short_name(largest.facts.name)})"
    return f"; {size}. Ask less, or several GPUs: annotation aliyun.com/gpu-count."


def capital(sentence: str) -> str:
    """The first letter raised, unless the sentence begins with a key."""
    word = sentence.split(" ", 1)[0]
    return sentence if "/" in word or "(" in word else sentence[:1].upper() + sentence[1:]


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
