"""The pod that is tried, as an object, and what its status means. Pure."""

import re
from typing import Any, Final, NamedTuple

import msgspec

from gpushare.core.facts import names, objects
from gpushare.core.facts.model import NodeFacts
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload.room import Asked

PREFIX: Final = "gpushare-validate-"
LABELS: Final = {"app": "gpushare", "component": "gpushare-workload-check"}
OF_NODE: Final = "gpushare.io/validates"  # a label: which node's, shortened
CONTAINER: Final = "check"
LIFE_SECONDS: Final = 120  # then kubelet ends it
PLACED_SECONDS: Final = 20.0  # for schedulers to find a place, and for kubelet to get over a failure
LIMIT_SECONDS: Final = 150.0
NOT_STARTED: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                      "CreateContainerError", "CreateContainerConfigError", "RunContainerError")  # fmt: skip

# What is another one at each try, in the words of others: the pod's name, ids of pods, and of containers. Not the uuids
# of GPUs, nor the digests of images.
CHANGING: Final = re.compile(
    rf"(?<={PREFIX})[a-z0-9]{{5}}\b|(?<![-\w])[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\b"
    r"|(?<!sha256:)\b[0-9a-f]{32,64}\b"
)

NOT_PLACED: Final = "a pod with 1 {resource} is not placed: {why}"
NOBODY_PLACES: Final = "{scheduler} has not looked at it"
SEE_SCHEDULER: Final = (
    "kubectl get pods -A | grep scheduler: does {scheduler} run? gpushare why explains pods that wait"
)
DOES_NOT_START: Final = "a pod with 1 {resource} does not start: {why}"
SEE_NODE: Final = "kubectl get events on this node; its container runtime's log; is there a RuntimeClass nvidia?"
REFUSED: Final = "kubelet refused a pod with 1 {resource}: {why}"
SAYS_NOTHING: Final = "a pod with 1 {resource} ended without a word: {why}"
NO_GPU: Final = "a pod with 1 {resource} has no driver: {why}"
RIGHT: Final = "a pod with 1 {resource} sees exactly {gpus}"
WRONG: Final = "a pod with 1 {resource} was given {given} and sees {gpus}"
SEE_RUNTIME: Final = (
    "NVIDIA's runtime as the default one, or its RuntimeClass in operator.runtimeClass; is another GPU plugin there?"
)
ONE_GPU: Final = "1 GPU of this node"


class Given(NamedTuple):
    """`owner`: name and uid of the pod that makes it, which it does not outlive; empty: nobody's."""

    namespace: str
    node: str
    node_label: str  # what the label `OF_NODE` says
    image: str
    pull_secrets: tuple[str, ...] = ()
    scheduler: str = ""  # who places pods with shares; empty: gpu-scheduler
    runtime_class: str = ""
    owner: tuple[str, str] = ("", "")


class Seen(msgspec.Struct):
    """What the container writes into its termination message."""

    gpus: list[str] = []  # uuids
    visible: str = ""  # NVIDIA_VISIBLE_DEVICES
    failure: str = ""  # why the driver does not answer


class Ended(objects.Struct):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None


class Held(objects.Struct):
    reason: str | None = None
    message: str | None = None


class State(objects.Struct):
    terminated: Ended | None = None
    waiting: Held | None = None


class ContainerStatus(objects.Struct):
    state: State | None = None


class PodStatus(objects.PodStatus):
    container_statuses: list[ContainerStatus] | None = None


class Tried(objects.Pod):
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def made(asks: Asked, given: Given) -> dict[str, Any]:
    """It may do nothing, and has no token of an account. It ignores all taints, as the parts on GPU nodes do."""
    only_here = {"key": "metadata.name", "operator": "In", "values": [given.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [only_here]}]}
    container = {
        "name": CONTAINER,
        "image": given.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["validate", "--inside"],
        "resources": {"limits": {asks.resource: "1"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    spec: dict[str, Any] = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"operator": "Exists"}],
        "schedulerName": scheduler_of(asks, given),
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFE_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }  # fmt: skip
    if given.runtime_class:
        spec["runtimeClassName"] = given.runtime_class
    if given.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in given.pull_secrets]
    metadata: dict[str, Any] = {
        "generateName": PREFIX,
        "namespace": given.namespace,
        "labels": {**LABELS, OF_NODE: given.node_label},
        "annotations": asks.annotations,
    }
    if all(given.owner):
        name, uid = given.owner
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def scheduler_of(asks: Asked, given: Given) -> str:
    """Two schedulers must not give out the same GPUs: those that kubelet counts are placed by the cluster's own."""
    return asks.scheduler if asks.by_count else given.scheduler or asks.scheduler


def judged(pod: Tried, asks: Asked, scheduler: str, waited: float) -> Verdict | None:
    """What its status means; None: nothing yet. `waited`: seconds since it was made."""
    if pod.status.phase in objects.FINISHED:
        return _ended(pod, asks)
    if waited < PLACED_SECONDS:
        return None
    if not pod.spec.node_name:
        conditions = pod.status.conditions or ()
        why = next((c.message for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)
        nobody = NOBODY_PLACES.format(scheduler=scheduler)
        way = SEE_SCHEDULER.format(scheduler=scheduler)
        return verdict.failed(NOT_PLACED.format(resource=asks.resource, why=why or nobody), way)
    held = _state(pod).waiting
    if held is not None and held.reason in NOT_STARTED:
        why = f"{held.reason}: {held.message}" if held.message else held.reason
        return verdict.failed(DOES_NOT_START.format(resource=asks.resource, why=why), SEE_NODE)
    if waited < LIMIT_SECONDS:
        return None
    return verdict.failed(DOES_NOT_START.format(resource=asks.resource, why="kubelet does not say why"), SEE_NODE)


def steady(said: Verdict) -> Verdict:
    """The same fault has the same words at each try: else every try would be an event and a write of the node."""
    return verdict.failed(CHANGING.sub("…", said.why), said.way) if said.state == "failed" else said


def _ended(pod: Tried, asks: Asked) -> Verdict:
    resource, ended = asks.resource, _state(pod).terminated
    if ended is None:
        why = pod.status.message or pod.status.reason or "it does not say why"
        return verdict.failed(REFUSED.format(resource=resource, why=why), SEE_NODE)
    try:
        seen = msgspec.json.decode(ended.message or "", type=Seen)
    except (msgspec.MsgspecError, ValueError):
        why = (ended.message or "").strip()[-200:] or f"{ended.reason}, exit code {ended.exit_code}"
        return verdict.failed(SAYS_NOTHING.format(resource=resource, why=why), SEE_NODE)
    if seen.failure:
        return verdict.failed(NO_GPU.format(resource=resource, why=seen.failure), SEE_RUNTIME)
    return _compared(seen, given_gpus(pod, asks), asks)


def _compared(seen: Seen, given: frozenset[str] | None, asks: Asked) -> Verdict:
    """`given` None: only kubelet knows. Then it is one GPU of the node, and what the env names if it names some."""
    sees, gpus = frozenset(seen.gpus), ", ".join(seen.gpus) or "none"
    if given is None:
        ours = {gpu.uuid for gpu in asks.facts.gpus}
        named = frozenset(word for word in seen.visible.split(",") if word in ours)
        right, said = len(sees) == 1 and sees <= ours and (not named or named == sees), ", ".join(named) or ONE_GPU
    else:
        right, said = sees == given, ", ".join(sorted(given)) or "none"
    if right:
        return verdict.passed(RIGHT.format(resource=asks.resource, gpus=gpus))
    return verdict.failed(WRONG.format(resource=asks.resource, given=said, gpus=gpus), SEE_RUNTIME)


def given_gpus(pod: objects.Pod, asks: Asked) -> frozenset[str] | None:
    """The GPUs that its annotations name, by uuid."""
    if asks.by_count:
        return None
    written = (pod.metadata.annotations or {}).get(names.ALLOCATION, "{}")
    try:
        allocation = msgspec.json.decode(written, type=dict[str, dict[str, int]])
    except (msgspec.MsgspecError, ValueError):
        return frozenset()
    return _uuids(asks.facts, {gpu for entry in allocation.values() for gpu in entry})


def _uuids(facts: NodeFacts, indices: set[str]) -> frozenset[str]:
    return frozenset(gpu.uuid for gpu in facts.gpus if str(gpu.index) in indices)


def _state(pod: Tried) -> State:
    statuses = pod.status.container_statuses or ()
    return next((status.state for status in statuses if status.state is not None), State())
