"""The status of a policy, as it is written. States, conditions and reasons are those of NVIDIA's operator.

Nothing in it changes while nothing happens: times are those of changes, and texts have no counting seconds.
"""

from collections.abc import Sequence
from typing import Any, Final

from gpushare.operator import active
from gpushare.operator.seeing.models import Policy
from gpushare.operator.status import components
from gpushare.operator.status.components import Line, Scene, Stand

Object = dict[str, Any]

READY, NOT_READY, IGNORED = "ready", "notReady", "ignored"
RECONCILED, NO_GPU_NODES, NOT_RECONCILED = "Reconciled", "NoGPUNodes", "ReconcileFailed"
OPERAND_NOT_READY, ERROR, FINE, IS_IGNORED, DELETING = "OperandNotReady", "Error", "Ready", "Ignored", "Deleting"
LISTED: Final = 10  # things that are wrong
ALL_WELL: Final = "all components are ready"
NO_GPUS: Final = "no node has a GPU of NVIDIA (label feature.node.kubernetes.io/pci-10de.present)"


def reconciled(policy: Policy, namespace: str, scene: Scene, now: str) -> Object:
    """After a pass, complete or not."""
    wrong = components.lines(scene)
    stands = components.stands(scene, wrong)
    nodes = [node.name for node in scene.nodes if node.gpus]
    ill = {line.node for line in wrong}
    counts = {"gpu": len(nodes), "ready": sum(name not in ill for name in nodes)}
    if wrong:
        reason = NOT_RECONCILED if scene.failed else OPERAND_NOT_READY
        conditions = _conditions(policy, (False, ERROR), (True, reason), _listed(wrong), now)
    else:
        reason, text = (RECONCILED, ALL_WELL) if nodes else (NO_GPU_NODES, NO_GPUS)
        conditions = _conditions(policy, (True, reason), (False, FINE), text + _unserved(stands), now)
    return _status(policy, namespace, NOT_READY if wrong else READY, conditions, stands, counts)


def failed(policy: Policy, namespace: str, why: Sequence[str], now: str) -> Object:
    """Nothing could be done. Components stay as they were last seen."""
    lines = [Line("", "", text) for text in sorted(set(why))]
    conditions = _conditions(policy, (False, ERROR), (True, NOT_RECONCILED), _listed(lines), now)
    return {**_before(policy), **_status(policy, namespace, NOT_READY, conditions)}


def deleting(policy: Policy, namespace: str, waits: Sequence[str], now: str) -> Object:
    lines = [Line("", "", text) for text in sorted(set(waits))]
    conditions = _conditions(policy, (False, DELETING), (False, DELETING), _listed(lines), now)
    return {**_before(policy), **_status(policy, namespace, NOT_READY, conditions)}


def ignored(policy: Policy, namespace: str, by: Policy, now: str) -> Object:
    message = active.IGNORED.format(active=by.name)
    conditions = _conditions(policy, (False, IS_IGNORED), (False, IS_IGNORED), message, now)
    return _status(policy, namespace, IGNORED, conditions, [], {"gpu": 0, "ready": 0})


def _status(
    policy: Policy,
    namespace: str,
    state: str,
    conditions: list[Object],
    stands: Sequence[Stand] | None = None,
    nodes: Object | None = None,
) -> Object:
    status: Object = {
        "state": state,
        "namespace": namespace,
        "observedGeneration": policy.metadata.generation,
        "conditions": conditions,
    }
    if stands is not None:
        status["components"] = [_component(stand) for stand in stands]
    if nodes is not None:
        status["nodes"] = nodes
    return status


def _component(stand: Stand) -> Object:
    """Without what says nothing: most components are fine, and some have no pods."""
    found: Object = {"name": stand.name, "state": stand.state}
    if stand.desired or stand.ready:
        found |= {"desired": stand.desired, "ready": stand.ready}
    if stand.message:
        found["message"] = stand.message
    return found


def _before(policy: Policy) -> Object:
    return {key: value for key, value in (policy.status or {}).items() if key in ("components", "nodes")}


def _conditions(
    policy: Policy, ready: tuple[bool, str], error: tuple[bool, str], message: str, now: str
) -> list[Object]:
    before = {one["type"]: one for one in (policy.status or {}).get("conditions") or ()}
    return [
        _condition(before.get(kind, {}), kind, "True" if true else "False", reason, message, now)
        for kind, (true, reason) in (("Ready", ready), ("Error", error))
    ]


def _condition(before: Object, kind: str, status: str, reason: str, message: str, now: str) -> Object:
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def _listed(wrong: Sequence[Line]) -> str:
    more = f"; and {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
    return "; ".join(map(str, wrong[:LISTED])) + more


def _unserved(stands: Sequence[Stand]) -> str:
    return "".join(f"; not served: {one.name}: {one.message}" for one in stands if one.state == "unserved")
