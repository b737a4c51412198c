"""What a Job wants next, and what its status says: the smallest controller that behaves.

Pure, called by `controllers`, which counts the pods that have ended, because an ended pod may be deleted and still
counts. As in a real cluster a pod that is deleted before its end has failed, and is replaced; unlike there it is
replaced at once.
"""

from typing import Final

from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.controllers import owned
from gpushare.devcluster.controllers.owned import Steps

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
TOO_OFTEN: Final = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
REACHED: Final = {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}


EVENTS: Final = {COMPLETE: ("Completed", "Job completed"), FAILED: (TOO_OFTEN["reason"], TOO_OFTEN["message"])}


def said(job: Object) -> str | None:
    """The end that its status tells of already."""
    types = [condition.get("type") for condition in job["status"].get("conditions") or []]
    return next((end for end in (COMPLETE, FAILED) if end in types), None)


def outcome(job: Object, pods: list[Object], succeeded: int, failed: int) -> str | None:
    """How the job has ended, if it has; an end is final."""
    if end := said(job):
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
    else:  # a queue of work: the pods know themselves when it is done, and none is made after the first success
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
    known: Object = {
        "startTime": old.get("startTime") or now,
        "ready": sum(owned.ready(pod) for pod in active),
        "terminating": sum(owned.leaving(pod) and owned.phase(pod) not in owned.ENDED for pod in pods),
    }
    if end == COMPLETE:
        known["completionTime"] = old.get("completionTime") or now
    if conditions:
        known["conditions"] = owned.with_conditions(old, conditions, now)
    return known | {name: count for name, count in counts.items() if count}


def _restarts(pod: Object) -> int:
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(found.get("restartCount", 0) for found in containers)
