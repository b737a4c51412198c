"""Pods that ask for GPUs by number, in words: what they ask, what each node sells, what would help, where they run.

Pure. kube-scheduler gives these out, and not gpushare, so no sentence here speaks of GPU memory as the reason.
"""

from gpushare.core.explain import report
from gpushare.core.explain.report import Explanation, NodeView, SoldView, Way
from gpushare.core.facts import names
from gpushare.view import wording
from gpushare.view.why.text import phrases

COLUMN = "SELLS"
NOT_OURS = "gpushare does not decide about such pods: kube-scheduler counts what nodes sell by itself."
KUBELETS_PART = "That is kubelet's part."
DELETING = "It is being deleted. What it has comes free when its containers have ended."
SEVERAL_SHARED = (
    "Whether a plugin gives out more than 1 of a shared resource is set on its node (failRequestsGreaterThanOne): that "
    "cannot be seen from here."
)
NOTHING = "none of it"
MOST_NAMES = 3  # pods in one phrase


def asked(explanation: Explanation) -> str:
    """`2 nvidia.com/gpu (container main)`."""
    return " + ".join(f"{ask.amount} {ask.resource} (container {ask.container})" for ask in explanation.asks)


def sells(view: NodeView) -> str:
    """What a node sells; what the pod asks comes first."""
    return "; ".join(map(_sold, view.sold)) or NOTHING


def place(way: Way, explanation: Explanation) -> str:
    """Where the pod would go, and what is free there."""
    view = next(view for view in explanation.nodes if view.name == way.node)
    wanted = {ask.resource for ask in explanation.asks}
    free = [f"{one.free} of {one.total} {one.resource} free" for one in view.sold if one.resource in wanted]
    return ", ".join([view.name, *free])


def ways(explanation: Explanation) -> list[str]:
    """The phrases after "It would fit if", cheapest first."""
    return [_phrase(way, explanation) for way in explanation.ways]


def several_shared(explanation: Explanation) -> list[str]:
    """What may still happen to a pod that fits by its numbers."""
    shared = {one.resource for view in explanation.nodes for one in view.sold if one.sharing not in ("", "none")}
    several = any(ask.amount > 1 and ask.resource in shared for ask in explanation.asks)
    return [f"  {SEVERAL_SHARED}"] if several else []


def runs(explanation: Explanation, who: str, now: float) -> list[str]:
    """A pod that has its node, or has ended."""
    if explanation.code == report.ENDED:
        why = f": {explanation.detail}" if explanation.detail else ""
        return [f"{who} {explanation.message}{why}. It holds no GPU any more."]
    node, what = explanation.pod.node, asked(explanation)
    if explanation.owner == report.KUBELET:
        first = f"{who} has {what} on {node}, but {explanation.detail}. {KUBELETS_PART}"
    else:
        started = explanation.pod.started
        since = f" for {wording.duration(now - wording.timestamp(started))}" if started else ""
        left = [f"{one.free} of {one.total} {one.resource}" for view in explanation.nodes for one in view.sold]
        first = f"{who} runs on {node}{since}: {what}." + (f" Left there: {', '.join(left)}." if left else "")
    return [first, *([f"  {DELETING}"] if explanation.pod.deleting else [])]


def _sold(one: SoldView) -> str:
    unhealthy = f", {one.unhealthy} unhealthy" if one.unhealthy else ""
    return f"{one.resource}: {one.free} of {one.total} free{unhealthy}"


def _phrase(way: Way, explanation: Explanation) -> str:
    resource = explanation.asks[0].resource
    if way.way == "shrink":
        return f"it asked {way.units} {resource} or less ({way.node}, now)"
    if way.way == "heal":
        return f"all unhealthy GPUs of {way.node} came back"
    if way.way == "ask" and way.resource == names.GPU_MEM:
        return f"it asked for GPU memory instead: {names.GPU_MEM}, at most {way.units} on one GPU ({way.node}, now)"
    if way.way == "ask":
        return f"it asked {way.resource} instead ({way.node}, {way.units} free)"
    count = way.count or len(way.holders or ())
    named = [f"{phrases.pod_name(holder, explanation)} ({holder.units})" for holder in (way.holders or ())[:MOST_NAMES]]
    rest = count - len(named)
    listed = ", ".join(named) + (f" and {rest} more" if rest else "")
    if not named:  # of namespaces that the reader may not see
        listed = wording.count(count, "pod")
    if way.way == "free":
        return f"{way.units} came free on {way.node}, where {listed} have some"
    if count == 1:
        return f"{listed} on {way.node} ended"
    return f"one of these on {way.node} ended: {listed}" if named else f"one of {listed} on {way.node} ended"
