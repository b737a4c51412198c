"""How far a DaemonSet or Deployment is: how many pods it should have, how many are ready, and what is missing."""

from typing import Any, NamedTuple

from gpushare.operator.seeing.models import Live

Object = dict[str, Any]


class Readiness(NamedTuple):
    """`missing`: empty if all is there."""

    desired: int
    ready: int
    missing: str = ""


def of(kind: str, live: Live) -> Readiness:
    spec, status = live.spec or {}, live.status or {}
    if kind == "Deployment":
        return _of_deployment(live, spec, status)
    return _of_daemon_set(live, spec, status)


def _of_daemon_set(live: Live, spec: Object, status: Object) -> Readiness:
    desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    updated, available = status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)
    if status.get("observedGeneration", 0) < live.metadata.generation:
        return Readiness(desired, ready, f"{_named(live)}: not seen by its controller yet")
    if updated < desired and spec.get("updateStrategy", {}).get("type") == "OnDelete":
        old = f"{desired - updated} of {desired} pods are old: delete them (update strategy OnDelete)"
        return Readiness(desired, ready, f"{_named(live)}: {old}")
    if updated < desired:
        return Readiness(desired, ready, f"{_named(live)}: {updated} of {desired} pods are updated")
    return Readiness(desired, ready, _available(live, available, desired))


def _of_deployment(live: Live, spec: Object, status: Object) -> Readiness:
    desired, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if status.get("observedGeneration", 0) < live.metadata.generation:
        return Readiness(desired, ready, f"{_named(live)}: not seen by its controller yet")
    if updated < desired or status.get("replicas", 0) > updated:
        return Readiness(desired, ready, f"{_named(live)}: {updated} of {desired} pods are updated")
    return Readiness(desired, ready, _available(live, available, desired))


def _available(live: Live, available: int, desired: int) -> str:
    return "" if available >= desired else f"{_named(live)}: {available} of {desired} pods are ready"


def _named(live: Live) -> str:
    return live.metadata.name
