"""A pod that fits right now and still waits: what to look at.

Pure. The checks come in a fixed order. The first that fails is the answer and ends the list.
"""

from gpushare.core.explain import condition
from gpushare.core.explain.report import Check, Quote
from gpushare.core.facts import intree
from gpushare.view import wording

BACK_OFF = 10.0  # seconds: the longest that kube-scheduler lets a pod wait between two tries
DEFAULT_SCHEDULER = "default-scheduler"

DELETING = "it is being deleted"
NO_GATE = "no scheduling gate"
GATE = "scheduling gate {gates}"
LOOKED = 'its scheduler "{scheduler}" has looked at it{ago}'
NOT_LOOKED = 'no scheduler has looked at it for {age}: does "{scheduler}" run?'
FREED_SINCE = "refused{ago}, memory came free since: next try within 10 s"
NOT_ASKED = "kube-scheduler refused it without asking gpushare: is the extender configured? docs/install.md"
SAYS = "kube-scheduler says: {message}"


def checks(pod: intree.Pod, quote: Quote | None, now: float, *, asked: bool) -> list[Check]:
    """The checks that were made; the last one says what the pod waits for. `asked`: the scheduler has to ask gpushare
    about such a pod."""
    if not_ready := unready(pod):
        return not_ready
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if quote is None:
        age = wording.duration(now - wording.timestamp(pod.metadata.creation_timestamp or ""))
        return [Check(True, NO_GATE), Check(False, NOT_LOOKED.format(age=age, scheduler=scheduler))]
    said = SAYS.format(message=quote.message)
    looked = LOOKED.format(scheduler=scheduler, ago=_since(quote, now, ", {} ago"))
    return [Check(True, NO_GATE), Check(True, looked), Check(False, _waits_for(quote, now) if asked else said)]


def unready(pod: intree.Pod) -> list[Check]:
    """Why no scheduler looks at a pod, whether it fits or not."""
    if pod.metadata.deletion_timestamp:
        return [Check(False, DELETING)]
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    return [Check(False, GATE.format(gates=", ".join(gates)))] if gates else []


def _waits_for(quote: Quote, now: float) -> str:
    totals = condition.only_totals(quote.message)
    just_now = quote.time is not None and now - wording.timestamp(quote.time) <= BACK_OFF
    if condition.refusal_in(quote.message) or (totals and just_now):
        return FREED_SINCE.format(ago=_since(quote, now, " {} ago"))
    # If it had asked us, our refusal would stand there. A pod refused by totals alone is tried again when they suffice.
    return NOT_ASKED if totals else SAYS.format(message=quote.message)


def _since(quote: Quote, now: float, template: str) -> str:
    return template.format(wording.duration(now - wording.timestamp(quote.time))) if quote.time else ""
