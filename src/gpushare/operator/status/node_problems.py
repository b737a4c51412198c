"""What a node says about itself: how its checks went, and which of its GPUs are unhealthy."""

from typing import Final

from gpushare.core.annotations import node_gpus, validation
from gpushare.core.facts import names
from gpushare.operator import nodes
from gpushare.operator.managed import Node
from gpushare.operator.status.facts import NodeFacts, Problem

FAILED, WAITING = "failed", "waiting"
PLUGIN: Final = "plugin"
DEPLOY_NODE_PART: Final = f"{names.DEPLOY_PREFIX}device-plugin"
PARTS: Final = {names.SHARED_MEMORY: "gpushare-node", names.SHARED_GPUS: "gpushare-nvidia"}  # DaemonSets
DEPLOY_VALIDATOR: Final = f"{names.DEPLOY_PREFIX}operator-validator"


def facts(node: Node) -> NodeFacts:
    labels = node.metadata.labels or {}
    gpus = nodes.is_gpu_node(node)
    served = gpus and labels.get(DEPLOY_VALIDATOR) == nodes.YES
    checks = validation.read(node)
    found = _failed(checks or {})
    if not any(problem.check == PLUGIN for problem in found):
        found += _unhealthy(node)
    sells = gpus and labels.get(DEPLOY_NODE_PART) == nodes.YES
    part = PARTS.get(labels.get(names.SHARED, ""), "") if sells else ""
    return NodeFacts(node.metadata.name, gpus, served, checks is not None, tuple(found) if gpus else (), part)


def _failed(checks: validation.Checks) -> list[Problem]:
    """What failed; if nothing did, what the first check waits for."""
    failed = [name for name in validation.CHECKS if name in checks and checks[name].state == FAILED]
    if failed:
        return [Problem(name, _sentence(name, checks[name]), _more(checks[name])) for name in failed]
    waiting = [name for name in validation.CHECKS if name in checks and checks[name].state == WAITING]
    return [Problem(name, _waiting(name, checks[name])) for name in waiting[:1]]


def _sentence(name: str, check: validation.Check) -> str:
    why = check.why or "check failed"
    return why if name in why else f"{name}: {why}"


def _more(check: validation.Check) -> str:
    return f"since {check.since}" + (f"; try: {check.way}" if check.way else "")


def _waiting(name: str, check: validation.Check) -> str:
    why = f": {check.why}" if check.why else ""
    return f"{name} check is waiting since {check.since}{why}"


def _unhealthy(node: Node) -> list[Problem]:
    if names.NODE_GPUS not in (node.metadata.annotations or {}):
        return []
    published = node_gpus.read(node, frozenset())
    unhealthy = [gpu for gpu in (published.gpus if published is not None else ()) if not gpu.healthy]
    return [
        Problem("", f"GPU {gpu.index} {gpu.uuid} is unhealthy" + (f": {gpu.why}" if gpu.why else ""))
        for gpu in unhealthy
    ]
