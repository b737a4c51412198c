"""One pod as a row of `kubectl get pods`: how many of its containers are ready, and its state in one word.

Pure. The word is found as kube-apiserver finds it: what the containers do says more than the phase, a failing init
container more than the others, a deletion most.
"""

from typing import Any, Final

from gpushare.devcluster import times
from gpushare.devcluster.apiserver.status import Object

NONE: Final = "<none>"


def pod(pod: Object, now: float) -> list[Any]:
    """The cells, the wide ones included."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    addresses = status.get("podIPs") or [{}]
    sidecars = {init["name"] for init in spec.get("initContainers") or [] if init.get("restartPolicy") == "Always"}
    ready, word = _init_state(spec, status, sidecars)
    restarted = list(status.get("initContainerStatuses") or [])
    if word is None or condition(status, "Initialized") == "True":
        running, word = _state(status)
        ready += running
        restarted = [found for found in restarted if found["name"] in sidecars]
        restarted += status.get("containerStatuses") or []
    if meta.get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        word = "Terminating"
    return [
        *(meta.get("name"), f"{ready}/{len(spec.get('containers') or []) + len(sidecars)}", word),
        *(_restarts(restarted, now), times.since(meta.get("creationTimestamp"), now)),
        *(addresses[0].get("ip", NONE), spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE),
        _gates(spec, status),
    ]


def condition(status: Object, type_: str) -> str | None:
    """What a condition says, None if it is not there."""
    return next((found.get("status") for found in status.get("conditions") or [] if found.get("type") == type_), None)


def _init_state(spec: Object, status: Object, sidecars: set[str]) -> tuple[int, str | None]:
    """How many sidecars are ready, and what the init container says that is not done yet."""
    ready = 0
    for i, found in enumerate(status.get("initContainerStatuses") or []):
        state = found.get("state") or {}
        waiting, ended = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if ended is not None and ended["exitCode"] == 0:
            continue
        if found["name"] in sidecars and found.get("started"):
            ready += bool(found.get("ready"))
        elif ended is not None:
            return ready, f"Init:{_end(ended)}"
        elif waiting and waiting != "PodInitializing":
            return ready, f"Init:{waiting}"
        else:
            return ready, f"Init:{i}/{len(spec['initContainers'])}"
    return ready, None


def _state(status: Object) -> tuple[int, str]:
    """How many containers are ready, and what they say: the first of them has the last word."""
    word = status.get("reason") or status.get("phase", "")
    if any(found.get("reason") == "SchedulingGated" for found in status.get("conditions") or []):
        word = "SchedulingGated"
    ready, failed = 0, ""
    for found in reversed(status.get("containerStatuses") or []):
        state = found.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            word = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            word = _end(state["terminated"])
            failed = word if state["terminated"]["exitCode"] else failed
        elif found.get("ready") and state.get("running") is not None:
            ready += 1
    if word == "Completed" and (ready or failed):
        word = "Running" if ready and condition(status, "Ready") == "True" else failed or "NotReady"
    return ready, word


def _end(terminated: Object) -> str:
    return terminated.get("reason") or f"ExitCode:{terminated['exitCode']}"


def _restarts(containers: list[Object], now: float) -> str:
    count = sum(found.get("restartCount", 0) for found in containers)
    ends = [(found.get("lastState") or {}).get("terminated") for found in containers]
    last = max((end["finishedAt"] for end in ends if end), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({times.since(last, now)} ago)"


def _gates(spec: Object, status: Object) -> str:
    gates = [gate["conditionType"] for gate in spec.get("readinessGates") or []]
    return f"{sum(condition(status, gate) == 'True' for gate in gates)}/{len(gates)}" if gates else NONE
