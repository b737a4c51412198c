"""States of pods, and the word people see for each: for the embedded server's tables, and for a real one's."""

from typing import Any

from tests.support.api_client import Object

CREATED = "2026-01-02T03:04:05Z"


def ready(is_ready: bool = True) -> Object:
    return {"type": "Ready", "status": str(is_ready), "lastTransitionTime": CREATED}


def state(name: str = "main", restarts: int = 0, is_ready: bool = False, **state: Any) -> Object:
    """What a kubelet says of one container."""
    said = {"name": name, "image": "busybox", "imageID": "", "ready": is_ready, "restartCount": restarts}
    return said | {"state": state, "started": "running" in state}


RUNNING = {"startedAt": CREATED}
CREATING = {"reason": "ContainerCreating"}
DONE = {"exitCode": 0, "reason": "Completed", "startedAt": CREATED, "finishedAt": CREATED}
CRASHED = DONE | {"exitCode": 3, "reason": "Error"}
INIT = [{"name": "fetch", "image": "busybox"}, {"name": "load", "image": "busybox"}]
SIDECAR = [{"name": "proxy", "image": "busybox", "restartPolicy": "Always"}]
TWO = [{"name": "main", "image": "busybox"}, {"name": "side", "image": "busybox"}]

# By the name of a pod: what its spec has besides one container, its status, and READY and STATUS as people see them.
STATES: dict[str, tuple[Object, Object, str, str]] = {
    "pending": ({}, {}, "0/1", "Pending"),
    "gated": ({"schedulingGates": [{"name": "example.com/wait"}]}, {}, "0/1", "SchedulingGated"),
    "creating": ({}, {"containerStatuses": [state(waiting=CREATING)]}, "0/1", "ContainerCreating"),
    "running": (
        {"containers": TWO},
        {
            "phase": "Running",
            "conditions": [ready()],
            "containerStatuses": [state(is_ready=True, running=RUNNING), state("side", is_ready=True, running=RUNNING)],
        },
        "2/2",
        "Running",
    ),
    "half": (
        {"containers": TWO},
        {
            "phase": "Running",
            "conditions": [ready()],
            "containerStatuses": [state(is_ready=True, running=RUNNING), state("side", terminated=DONE)],
        },
        "1/2",
        "Running",
    ),
    "not-ready": (
        {"containers": TWO},
        {
            "phase": "Running",
            "conditions": [ready(False)],
            "containerStatuses": [state(terminated=DONE), state("side", is_ready=True, running=RUNNING)],
        },
        "1/2",
        "NotReady",
    ),
    "completed": ({}, {"phase": "Succeeded", "containerStatuses": [state(terminated=DONE)]}, "0/1", "Completed"),
    "failed": ({}, {"phase": "Failed", "containerStatuses": [state(terminated=CRASHED)]}, "0/1", "Error"),
    "one-failed": (
        {"containers": TWO},
        {"phase": "Failed", "containerStatuses": [state(terminated=DONE), state("side", terminated=CRASHED)]},
        "0/2",
        "Error",
    ),
    "evicted": ({}, {"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted"),
    "nameless-end": (
        {},
        {"phase": "Failed", "containerStatuses": [state(terminated={**CRASHED, "reason": ""})]},
        "0/1",
        "ExitCode:3",
    ),
    "crashing": (
        {},
        {"phase": "Running", "containerStatuses": [state(waiting={"reason": "CrashLoopBackOff"})]},
        "0/1",
        "CrashLoopBackOff",
    ),
    "init-first": (
        {"initContainers": INIT},
        {"initContainerStatuses": [state("fetch", running=RUNNING), state("load", waiting={})]},
        "0/1",
        "Init:0/2",
    ),
    "init-second": (
        {"initContainers": INIT},
        {
            "initContainerStatuses": [
                state("fetch", terminated=DONE),
                state("load", waiting={"reason": "PodInitializing"}),
            ]
        },
        "0/1",
        "Init:1/2",
    ),
    "init-crashing": (
        {"initContainers": INIT},
        {"initContainerStatuses": [state("fetch", waiting={"reason": "CrashLoopBackOff"}), state("load", waiting={})]},
        "0/1",
        "Init:CrashLoopBackOff",
    ),
    "init-failed": (
        {"initContainers": INIT},
        {"phase": "Failed", "initContainerStatuses": [state("fetch", terminated=CRASHED), state("load", waiting={})]},
        "0/1",
        "Init:Error",
    ),
    "initializing": (
        {"initContainers": INIT},
        {
            "initContainerStatuses": [state("fetch", terminated=DONE), state("load", terminated=DONE)],
            "containerStatuses": [state(waiting={"reason": "PodInitializing"})],
        },
        "0/1",
        "PodInitializing",
    ),
    "sidecar": (
        {"initContainers": SIDECAR},
        {
            "phase": "Running",
            "conditions": [ready()],
            "initContainerStatuses": [state("proxy", is_ready=True, running=RUNNING)],
            "containerStatuses": [state(is_ready=True, running=RUNNING)],
        },
        "2/2",
        "Running",
    ),
}  # fmt: skip
