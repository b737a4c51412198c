"""What a Deployment needs next, and its status. Pure, and as small as possible.

There are no ReplicaSets: the Deployment owns its pods, and a label with the template's hash says which are up to date.
A changed template rolls out as its strategy says, within maxSurge and maxUnavailable.
"""

import hashlib
from typing import Any, Final

import msgspec

from gpushare.devcluster import lifecycle
from gpushare.devcluster.apiserver.kinds import workloads
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.controllers import owned
from gpushare.devcluster.controllers.owned import Steps

HASH_LABEL: Final = "pod-template-hash"


def labels(deployment: Object) -> dict[str, str]:
    """Labels of its new pods."""
    template = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    return {HASH_LABEL: hashlib.sha256(template).hexdigest()[:10]}


def steps(deployment: Object, pods: list[Object]) -> Steps:
    wanted: int = deployment["spec"]["replicas"]
    surge, missing = _slack(deployment["spec"])
    new, old = _by_template(deployment, owned.active(pods))
    if not old:
        surplus = owned.expendable(new)[: max(0, len(new) - wanted)]
        return Steps(0 if _waits(deployment, pods) else max(0, wanted - len(new)), surplus)
    create = 0 if _recreates(deployment) else max(0, min(wanted - len(new), wanted + surge - len(new) - len(old)))
    fewest = wanted - missing
    ready = sum(owned.ready(pod) for pod in (*new, *old))
    idle = [pod for pod in old if not owned.ready(pod)]
    busy = owned.expendable(pod for pod in old if owned.ready(pod))[: max(0, ready - fewest)]
    # As many old pods stay as new ones are not ready yet.
    most = max(0, len(old) + sum(owned.ready(pod) for pod in new) - fewest)
    return Steps(create, [*idle, *busy][:most])


def status(deployment: Object, pods: list[Object], now: str) -> Object:
    """Numbers that are 0 are left out, as the real controller does."""
    wanted: int = deployment["spec"]["replicas"]
    active = owned.active(pods)
    ready = sum(owned.ready(pod) for pod in active)
    updated = len(_by_template(deployment, active)[0])
    enough = ready >= wanted - _slack(deployment["spec"])[1]
    done = updated == len(active) == ready == wanted
    name = deployment["metadata"]["name"]
    counts = {
        "replicas": len(active),
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, wanted - ready),
    }
    conditions = [
        {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        },
        {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            "message": f'Deployment "{name}" {"has successfully progressed" if done else "is progressing"}.',
        },
    ]
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        **{name: count for name, count in counts.items() if count},
        "conditions": lifecycle.with_conditions(deployment["status"], conditions, now),
    }


def _by_template(deployment: Object, pods: list[Object]) -> tuple[list[Object], list[Object]]:
    """Those of the current template, and the others."""
    current = labels(deployment)[HASH_LABEL]
    halves: tuple[list[Object], list[Object]] = ([], [])
    for pod in pods:
        halves[(pod["metadata"].get("labels") or {}).get(HASH_LABEL) != current].append(pod)
    return halves


def _waits(deployment: Object, pods: list[Object]) -> bool:
    """Whether new pods have to wait until the old ones are gone."""
    leaving = [pod for pod in pods if lifecycle.is_terminating(pod)]
    return _recreates(deployment) and bool(_by_template(deployment, leaving)[1])


def _recreates(deployment: Object) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == workloads.RECREATE)


def _slack(spec: Object) -> tuple[int, int]:
    """How many pods too many, and how many too few, are allowed while a new template rolls out."""
    wanted: int = spec["replicas"]
    if spec["strategy"]["type"] == workloads.RECREATE:
        return 0, wanted
    rolling = spec["strategy"]["rollingUpdate"]
    surge = -(-_share(rolling["maxSurge"], wanted) // 100)
    missing = _share(rolling["maxUnavailable"], wanted) // 100
    return (surge, missing) if surge or missing else (0, 1)


def _share(value: Any, wanted: int) -> int:
    """In hundredths: the caller rounds up or down."""
    return int(value[:-1]) * wanted if isinstance(value, str) and value.endswith("%") else int(value) * 100
