"""The pods that wait for GPU memory, and why; and those that wait for GPUs by count.

No I/O, from a `Snapshot`, in the words of `core.placement.fit` and `core.facts.request`, which also stand in the pods'
conditions. One line each; `gpushare why` says more about one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from gpushare.core.explain import event_texts, survey, views
from gpushare.core.explain.report import KeptView
from gpushare.core.facts import intree, kinds, names, objects, units
from gpushare.core.facts.model import PodFacts, Refusal, Request, Unit
from gpushare.core.facts.objects import FINISHED
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import fit
from gpushare.core.steps import Steps, finish
from gpushare.view import by_count, sold, wording
from gpushare.view.snapshot import Snapshot

NOT_GPU_MEMORY = "fits {node} now: GPU memory is not what it waits for"
NOT_GPUS = "fits {node} now: GPUs are not what it waits for"
NO_NODE = "no node of this cluster shares a GPU"


Waits = PodFacts | intree.Pod
"""A pod that asks gpushare, or one that asks by count."""


class Closest(msgspec.Struct):
    """The GPU that lacks the least for a pod."""

    node: str
    gpu: int
    free: int
    short: int


class Answer(msgspec.Struct):
    """What a request waits for. Equal requests get equal answers."""

    verdict: str
    code: str
    message: str
    asks: str
    closest: Closest | None = None
    kept: KeptView | None = None
    hint: str = ""
    by_count: bool = False


class Waiting(msgspec.Struct):
    namespace: str
    name: str
    created: str
    answer: Answer


def who(cluster: Snapshot) -> list[Waits]:
    """All pods that wait, by namespace and name. Their reasons are left to `pods`: they cost more than the rest."""
    ours = {pod.uid: pod for pod in cluster.asking if not (pod.node or pod.finished or pod.terminating)}
    return [
        ours.get(pod.metadata.uid, pod)
        for pod in cluster.pods
        if not pod.spec.node_name and (pod.metadata.uid in ours or _waits_by_count(pod))
    ]


def _waits_by_count(pod: intree.Pod) -> bool:
    over = pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED
    return not over and bool(sold.asked(pod))


def pods(cluster: Snapshot, waiting: Sequence[Waits]) -> list[Waiting]:
    """These pods with what each waits for."""
    return finish(answering(cluster, waiting))


def answering(cluster: Snapshot, waiting: Sequence[Waits]) -> Steps[list[Waiting]]:
    """The same in steps, one for each request that differs: with many nodes each takes long."""
    offers = by_count.offers(sold.uses(cluster)) if any(isinstance(pod, intree.Pod) for pod in waiting) else {}
    invalid = {pod.uid for pod in waiting if isinstance(pod, PodFacts) and isinstance(pod.request, Refusal)}
    written = {pod.metadata.uid: pod for pod in cluster.pods if pod.metadata.uid in invalid} if invalid else {}
    answers: dict[tuple[object, ...], Answer] = {}

    def once(what: tuple[object, ...], work_out: Callable[[], Answer]) -> Steps[Answer]:
        if what not in answers:
            answers[what] = work_out()
            yield
        return answers[what]

    answered = []
    for pod in waiting:
        if isinstance(pod, intree.Pod):
            meta, asks = pod.metadata, sold.asked(pod)
            answer = yield from once(tuple(asks.items()), partial(_by_count, asks, offers))
            answered.append(Waiting(meta.namespace, meta.name, meta.creation_timestamp or "", answer))
            continue
        if isinstance(pod.request, Request):
            answer = yield from once(key(cluster.ledger, pod), partial(_answer, cluster.ledger, pod, pod.request))
        else:
            assert pod.request is not None
            answer = _invalid(pod.request, written[pod.uid])
        answered.append(Waiting(pod.namespace, pod.name, pod.created, answer))
    return answered


def why(answer: Answer) -> str:
    if answer.kept is not None:
        return f"{answer.message}; {event_texts.kept(answer.kept)}"
    if answer.closest is not None:
        near = answer.closest
        return f"{answer.message}; closest {near.node} GPU {near.gpu}, {near.short} short"
    return f"{answer.message}; {answer.hint}" if answer.hint else answer.message


def view(one: Waiting) -> dict[str, object]:
    """The same for programs."""
    answer = one.answer
    closest = msgspec.to_builtins(answer.closest) if answer.closest is not None else None
    return {
        "namespace": one.namespace,
        "name": one.name,
        "created": one.created,
        "asks": answer.asks,
        "verdict": answer.verdict,
        "code": answer.code,
        "message": answer.message,
        "detail": answer.hint,
        "closest": closest,
        **({"kept": msgspec.to_builtins(answer.kept)} if answer.kept is not None else {}),
    }


def key(ledger: Ledger, pod: PodFacts) -> tuple[object, ...]:
    """All that decides the answer. With nominations it depends on the pod, too."""
    assert isinstance(pod.request, Request)
    if not ledger.has_promises():
        return (pod.request.shape,)
    return pod.request.shape, pod.priority, pod.uid if ledger.is_promised(pod.uid) else ""


def _answer(ledger: Ledger, pod: PodFacts, request: Request) -> Answer:
    surveyed = survey.survey(ledger, pod)
    outcome, refused = survey.verdict_of(surveyed)
    if not surveyed:
        return Answer(outcome, fit.NO_SHARED_GPU.code, NO_NODE, _asks(request, request.unit or "MiB"))
    first = ledger.node(surveyed[0][0])
    assert first is not None
    assert first.facts is not None
    asks = _asks(request, request.unit or first.facts.unit)
    if refused is None:
        return Answer(outcome, "Fits", NOT_GPU_MEMORY.format(node=first.name), asks)
    if refused.code == "TooLarge":
        return Answer(outcome, refused.code, refused.message, asks, hint=_largest(ledger, surveyed, refused))
    closest = _closest(first, pod, request) if refused.code == "NoSingleGpu" else None
    return Answer(outcome, refused.code, refused.message, asks, closest, views.kept(ledger, pod))


def _by_count(asks: by_count.Asks, offers: Mapping[str, by_count.Offer]) -> Answer:
    refused, asked = by_count.refusal(asks, list(offers.values())), by_count.in_words(asks)
    missing = sorted((sum(by_count.short(asks, offer).values()), name) for name, offer in offers.items())
    if refused is None:
        return Answer("fits", "Fits", NOT_GPUS.format(node=missing[0][1]), asked, by_count=True)
    possible = [(short, name) for short, name in missing if by_count.could(asks, offers[name])]
    hint = "closest {1}, {0} short".format(*possible[0]) if possible else ""
    verdict = "never" if refused.forever else "refused"
    return Answer(verdict, refused.code, refused.message, asked, hint=hint, by_count=True)


def _closest(state: NodeState, pod: PodFacts, request: Request) -> Closest | None:
    room = state.room_for(pod)
    if not request.one_share or room is None or not room.rising:
        return None
    free, need = room.rising[-1], request.shares[0].units
    gpu = next(g for g, f in zip(room.facts.gpus, room.free, strict=True) if f == free and g.healthy)
    return Closest(state.name, gpu.index, free, need - free) if free < need else None


def _largest(ledger: Ledger, surveyed: Sequence[tuple[str, Refusal | None]], refused: Refusal) -> str:
    sizes = [
        (state.room.largest, state.room.facts)
        for name, answer in surveyed
        if answer == refused and (state := ledger.node(name)) is not None and state.room is not None
    ]
    size, facts = max(sizes, key=lambda pair: pair[0])
    return f"the largest is {size} {facts.unit} ({facts.name})"


def _asks(request: Request, unit: Unit) -> str:
    if len(request.shares) > 1:
        return fit.parts(request, unit)
    share = request.shares[0]
    amount = share.units or share.each_in(unit)
    return share.kind.in_words(f"{amount} {unit}" if amount else "", share.gpus)


def _invalid(request: Refusal, pod: objects.Pod) -> Answer:
    """An invalid request: as it was written, and what to write instead."""
    containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    limits = [container.resources.limits or {} for container in containers if container.resources]
    written = [limit[name] for limit in limits for name in kinds.BY_RESOURCE if name in limit]
    hint = request.detail.removesuffix(".")
    if request.code == "NotMemory":
        unit = (pod.metadata.annotations or {}).get(names.MEMORY_UNIT, names.MIB)
        meant = [(quantity, amount) for quantity in written if (amount := units.parse(quantity)) and amount.value]
        wrong = next(((q, a) for q, a in meant if a.binary or a.value > units.TIB_IN[unit]), None)
        hint = f"for {units.short(wrong[0])} write {units.in_unit(wrong[1].value, unit)}" if wrong else hint
    asks = " + ".join(map(units.short, written))
    return Answer("invalid", request.code, request.message, asks, hint=wording.printable(hint))
