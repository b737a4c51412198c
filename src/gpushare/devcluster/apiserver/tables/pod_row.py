"""One pod as a row of `kubectl get pods`: how many of its containers are ready, and its state in one word.

Pure. kube-apiserver's rules for the word: containers count more than the phase, a failing init container more than
other containers, a deletion most.
"""

from typing import Any, Final

from gpushare.devcluster import times
from gpushare.devcluster.apiserver.status import Object

NONE: Final = "<none>"


def pod(pod: Object, now: float) -> list[Any]:
    """All cells, also those of `-o wide`."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    addresses = status.get("podIPs") or [{}]
    sidecars = {init["name"] for init in spec.get("initContainers") or [] if init.get("restartPolicy") == "Always"}
    ready, word = _init_state(spec, status, sidecars)
    restarted = list(status.get("initContainerStatuses") or [])
    if word is None or condition(status, "Initialized") == "True":
        running, word = _state(status)
        ready += running
        restarted = [container for container in restarted if container["name"] in sidecars]
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
    """The status of a condition; None if there is no such condition."""
    conditions = status.get("conditions") or []
    return next((condition.get("status") for condition in conditions if condition.get("type") == type_), None)


def _init_state(spec: Object, status: Object, sidecars: set[str]) -> tuple[int, str | None]:
    """How many sidecars are ready, and the state of the first init container that is not done."""
    ready = 0
    for i, container in enumerate(status.get("initContainerStatuses") or []):
        state = container.get("state") or {}
        waiting, ended = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if ended is not None and ended["exitCode"] == 0:
            continue
        if container["name"] in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
        elif ended is not None:
            return ready, f"Init:{_end(ended)}"
        elif waiting and waiting != "PodInitializing":
            return ready, f"Init:{waiting}"
        else:
            return ready, f"Init:{i}/{len(spec['initContainers'])}"
    return ready, None


def _state(status: Object) -> tuple[int, str]:
    """How many containers are ready, and the state in one word, which the first container decides."""
    word = status.get("reason") or status.get("phase", "")
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or []):
        word = "SchedulingGated"
    ready, failed = 0, ""
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            word = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            word = _end(state["terminated"])
            failed = word if state["terminated"]["exitCode"] else failed
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if word == "Completed" and (ready or failed):
        word = "Running" if ready and condition(status, "Ready") == "True" else failed or "NotReady"
    return ready, word


def _end(terminated: Object) -> str:
    return terminated.get("reason") or f"ExitCode:{terminated['exitCode']}"


def _restarts(containers: list[Object], now: float) -> str:
    count = sum(container.get("restartCount", 0) for container in containers)
    ends = [(container.get("lastState") or {}).get("terminated") for container in containers]
    last = max((end["finishedAt"] for end in ends if end), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({times.since(last, now)} ago)"


def _gates(spec: Object, status: Object) -> str:
    gates = [gate["conditionType"] for gate in spec.get("readinessGates") or []]
    return f"{sum(condition(status, gate) == 'True' for gate in gates)}/{len(gates)}" if gates else NONE
