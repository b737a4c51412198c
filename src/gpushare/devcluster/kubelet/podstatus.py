"""A pod's status as kubelet writes it (containers, addresses, conditions, phase), and the env of its containers. Pure.

Of all that Kubernetes can put into an env, plain values and references to the pod's own fields are supported.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.kubelet.device_manager import REASON

CREATING: Final = "ContainerCreating"
INITIALIZING: Final = "PodInitializing"
CRASHED: Final = "CrashLoopBackOff"
REJECTED: Final = "Pod was rejected: {why}"
_ANNOTATION: Final = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]")
_UNKNOWN: Final = "<not simulated: {source}>"


@dataclass
class Run:
    """One container, over all its restarts."""

    spec: Object
    field: str  # of the pod's spec
    state: str = "waiting"  # or running, terminated
    reason: str = CREATING
    started: str = ""
    ended: str = ""
    code: int = 0
    restarts: int = 0
    last: Object | None = None  # how it ended before the last restart
    pod_uid: str = ""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def init(self) -> bool:
        return self.field == "initContainers"

    @property
    def sidecar(self) -> bool:
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def id(self) -> str:
        """As a container runtime gives one to each start."""
        return hashlib.sha256(f"{self.pod_uid}/{self.name}/{self.restarts}".encode()).hexdigest()

    def start(self, now: str) -> None:
        self.state, self.started = "running", now

    def end(self, code: int, now: str) -> None:
        self.state, self.code, self.ended = "terminated", code, now

    def wait_again(self) -> None:
        """After an end that is followed by a restart."""
        self.last, self.state, self.reason = self._state()["terminated"], "waiting", CRASHED
        self.restarts += 1

    def _state(self) -> Object:
        if self.state == "waiting":
            return {"waiting": {"reason": self.reason}}
        if self.state == "running":
            return {"running": {"startedAt": self.started}}
        reason = "Error" if self.code else "Completed"
        times = {"startedAt": self.started, "finishedAt": self.ended}
        return {"terminated": {"exitCode": self.code, "reason": reason, **times}}

    def status(self) -> Object:
        started = {} if self.state == "waiting" else {"containerID": f"simulated://{self.id}"}
        return started | {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "state": self._state(),
            "lastState": {"terminated": self.last} if self.last else {},
            "ready": self.running or (self.init and self.state == "terminated" and self.code == 0),
            "started": self.running,
            "restartCount": self.restarts,
        }


def runs(pod: Object) -> list[Run]:
    """The containers of a pod in the order in which they start, none of them started."""
    spec, uid = pod["spec"], pod["metadata"].get("uid", "")
    inits = [Run(c, "initContainers", reason=INITIALIZING, pod_uid=uid) for c in spec.get("initContainers") or []]
    reason = INITIALIZING if inits else CREATING
    return inits + [Run(c, "containers", reason=reason, pod_uid=uid) for c in spec.get("containers") or []]


def lifetime(run: Run) -> tuple[float | None, int]:
    """After how many seconds a container ends, None for never, and with which exit code.

    `sleep N`, `true` and `false` do what they say, also within `sh -c`; an init container with anything else ends at
    once, and every other container runs for ever.
    """
    words = [*(run.spec.get("command") or []), *(run.spec.get("args") or [])]
    if len(words) == 3 and words[0] in ("sh", "/bin/sh") and words[1] == "-c":
        words = words[2].split()
    match words:
        case ["true"]:
            return 0.0, 0
        case ["false"]:
            return 0.0, 1
        case ["sleep", length] if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", length, re.ASCII):
            return float(length), 0
    return (0.0 if run.init else None), 0


def restarts(run: Run, policy: str) -> bool:
    """Whether a container that has ended is started again."""
    if run.init or policy != "Always":
        return policy != "Never" and run.code != 0
    return True


def environment(pod: Object, run: Run) -> dict[str, str]:
    """The env of the container. Of two entries with one name the last one counts."""
    return {entry["name"]: _value(pod, entry) for entry in run.spec.get("env") or []}


def _value(pod: Object, entry: Object) -> str:
    source = entry.get("valueFrom") or {}
    if not source:
        return str(entry.get("value") or "")
    if "fieldRef" not in source:
        return _UNKNOWN.format(source=", ".join(source))
    path = source["fieldRef"].get("fieldPath", "")
    if match := _ANNOTATION.fullmatch(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, dict) else ""
    return str(value) if not isinstance(value, dict | list) else _UNKNOWN.format(source=path)


def phase(runs: list[Run]) -> str:
    """A sidecar does not decide it, but the pod ends only after its sidecars."""
    if any(run.init and not run.sidecar and run.state == "terminated" and run.code for run in runs):
        return "Failed"
    apps = [run for run in runs if not run.init]
    if all(run.state == "terminated" for run in apps) and not any(run.sidecar and run.running for run in runs):
        return "Failed" if any(run.code for run in apps) else "Succeeded"
    return "Running" if any(run.started for run in apps) else "Pending"


def status(runs: list[Run], *, started: str, address: str, host: str) -> Object:
    """The status as kubelet writes it, without times of conditions. `address` is empty until the pod has one."""
    now = phase(runs)
    initialized = all(_done(run) for run in runs if run.init)
    ready = all(run.running for run in runs if not run.init or run.sidecar)
    why: Object = {}
    if not ready:
        why = {"reason": "PodCompleted" if now == "Succeeded" else "ContainersNotReady"}
    conditions = [
        {"type": "PodReadyToStartContainers", "status": _word(bool(address))},
        {"type": "Initialized", "status": _word(initialized)},
        {"type": "Ready", "status": _word(ready), **why},
        {"type": "ContainersReady", "status": _word(ready), **why},
    ]
    result: Object = {"phase": now, "startTime": started, "hostIP": host, "hostIPs": [{"ip": host}]}
    if address:
        result |= {"podIP": address, "podIPs": [{"ip": address}]}
    inits = [run.status() for run in runs if run.init]
    return (
        result
        | {"conditions": conditions, "containerStatuses": [run.status() for run in runs if not run.init]}
        | ({"initContainerStatuses": inits} if inits else {})
    )


def rejected(why: str, *, started: str) -> Object:
    """The status of a pod that is not admitted. It has no containers."""
    return {"phase": "Failed", "reason": REASON, "message": REJECTED.format(why=why), "startTime": started}


def _done(init: Run) -> bool:
    return bool(init.started) if init.sidecar else init.state == "terminated" and init.code == 0


def _word(true: bool) -> str:
    return "True" if true else "False"
