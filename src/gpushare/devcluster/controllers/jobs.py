"""What a Job needs next, and its status. Pure, and as small as possible.

Ended pods are counted by `controllers`, because an ended pod still counts after it was deleted. As in a real cluster a
pod that is deleted before its end has failed and is replaced; here it is replaced at once.
"""

from typing import Final

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.controllers import owned
from gpushare.devcluster.controllers.owned import Steps

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
TOO_OFTEN: Final = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
REACHED: Final = {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}


EVENTS: Final = {COMPLETE: ("Completed", "Job completed"), FAILED: (TOO_OFTEN["reason"], TOO_OFTEN["message"])}


def recorded_end(job: Object) -> str | None:
    """The end that its status already shows."""
    types = [condition.get("type") for condition in job["status"].get("conditions") or []]
    return next((end for end in (COMPLETE, FAILED) if end in types), None)


def outcome(job: Object, pods: list[Object], succeeded: int, failed: int) -> str | None:
    """How the job has ended; None if it has not. An end is final."""
    if end := recorded_end(job):
        return end
    spec = job["spec"]
    limit = spec["backoffLimit"]
    restarts = sum(_restarts(pod) for pod in owned.active(pods))
    if failed > limit or restarts >= max(1, limit):
        return FAILED
    wanted = spec.get("completions")
    enough = succeeded >= wanted if wanted is not None else succeeded > 0 and not owned.active(pods)
    return COMPLETE if enough else None


def steps(job: Object, pods: list[Object], succeeded: int, end: str | None) -> Steps:
    active = owned.active(pods)
    spec = job["spec"]
    if end is not None:
        wanted = 0
    elif spec.get("completions") is not None:
        wanted = min(spec["parallelism"], spec["completions"] - succeeded)
    else:  # a work queue: the pods know when it is done, so none is created after the first success
        wanted = min(spec["parallelism"], len(active)) if succeeded else spec["parallelism"]
    return Steps(max(0, wanted - len(active)), owned.expendable(active)[: max(0, len(active) - wanted)])


def status(job: Object, pods: list[Object], succeeded: int, failed: int, end: str | None, now: str) -> Object:
    active = [] if end else owned.active(pods)
    counts = {"active": len(active), "succeeded": succeeded, "failed": failed}
    conditions = []
    if end is not None:
        before, why = ("SuccessCriteriaMet", REACHED) if end == COMPLETE else ("FailureTarget", TOO_OFTEN)
        conditions = [{"type": type_, "status": "True", **why} for type_ in (before, end)]
    old = job["status"]
    result: Object = {
        "startTime": old.get("startTime") or now,
        "ready": sum(owned.ready(pod) for pod in active),
        "terminating": sum(lifecycle.is_terminating(pod) and not lifecycle.has_ended(pod) for pod in pods),
    }
    if end == COMPLETE:
        result["completionTime"] = old.get("completionTime") or now
    if conditions:
        result["conditions"] = lifecycle.with_conditions(old, conditions, now)
    return result | {name: count for name, count in counts.items() if count}


def _restarts(pod: Object) -> int:
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(container.get("restartCount", 0) for container in containers)
