"""Why a pod of ours is not ready, in the words of kubelet and of kube-scheduler.

A pod that only needs a moment has no reason. An init container that runs waits for a check of its node, which says more
than the pod does.
"""

from typing import Final

from gpushare.core.facts import names
from gpushare.operator.seeing.models import ContainerStatus, Pod
from gpushare.operator.status.facts import PodFacts

PULL: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
JUST_STARTING: Final = ("", "ContainerCreating", "PodInitializing")
LONGEST: Final = 200  # characters of somebody else's words


def facts(pod: Pod) -> PodFacts:
    component = (pod.metadata.labels or {}).get(names.PART_OF, "")
    problem = "" if pod.ready else _problem(pod)
    ends = pod.metadata.deletion_timestamp or ""
    return PodFacts(pod.metadata.name, component, pod.spec.node_name or "", pod.ready, problem, ends)


def _problem(pod: Pod) -> str:
    if pod.status.phase == "Failed":
        return _short(f"{pod.status.reason or 'Failed'}: {pod.status.message or 'no message'}")
    containers = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    found = next((text for text in map(_of_container, containers) if text), "")
    return found or _unscheduled(pod)


def _of_container(container: ContainerStatus) -> str:
    waiting = container.state.waiting
    if waiting is None or waiting.reason in JUST_STARTING:
        return ""
    if waiting.reason in PULL:
        return _short(f"image {container.image} cannot be pulled ({waiting.reason}): {_innermost(waiting.message)}")
    ended = container.last_state.terminated
    if waiting.reason == "CrashLoopBackOff" and ended is not None:
        said = _last_words(ended.message)
        why = f"exit code {ended.exit_code}" + (f": {said}" if said else "")
        return _short(f"container {container.name} ends again and again ({waiting.reason}): {why}")
    return _short(f"container {container.name}: {waiting.reason}: {waiting.message}".rstrip(": "))


def _last_words(message: str) -> str:
    """The message may be the end of a log: what counts is the error at its end, or its last line."""
    _, error, text = message.strip().rpartition("error: ")
    return text if error else text.rpartition("\n")[2]


def _unscheduled(pod: Pod) -> str:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return _short(f"cannot be scheduled: {condition.message or 'no reason given'}")
    return ""


def _innermost(message: str) -> str:
    """Runtimes put the cause last, behind their own words."""
    return message.strip().rpartition(": ")[2] or "no reason given"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
