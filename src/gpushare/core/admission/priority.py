"""KETI's annotation `priority` as a PriorityClass: that is how kube-scheduler orders the pods that wait.

Only for pods of gpu-scheduler that name no class of their own. deploy/keti/deployments/priority.yaml has the classes,
and a policy that does the same in CEL. Each class says `preemptionPolicy: Never`: KETI's word is about the queue, and
evicts nobody. Class, number and preemption policy are set together: the API server compares them, and has filled in
those of no class before.
"""

from typing import Final

from gpushare.core.admission import containers
from gpushare.core.admission.containers import Object
from gpushare.core.facts import names, objects

SCHEDULER: Final = "gpu-scheduler"
LOW, HIGH, IMMEDIATE = "gpu-low", "gpu-high", "gpu-immediate"
# In capitals. The second word for "immediately" is KETI's own. M, anything else and nothing are the middle: no class.
CLASSES: Final = {
    "L": LOW, "LOW": LOW, "H": HIGH, "HIGH": HIGH, "I": IMMEDIATE, "IMMEDIATELY": IMMEDIATE, "IMMEDIATLY": IMMEDIATE
}  # fmt: skip


def wanted(pod: Object) -> str:
    """The name of the class that the pod gets, if the cluster has it; empty: none."""
    spec, written = containers.spec(pod), containers.annotations(pod).get(names.PRIORITY)
    if spec.get("schedulerName") != SCHEDULER or spec.get("priorityClassName"):
        return ""
    return named(written) if isinstance(written, str) else ""


def named(written: str) -> str:
    """The class of this word; empty: none."""
    return CLASSES.get(written.upper(), "") if written.isascii() else ""


def json_patch(found: objects.PriorityClass) -> list[Object]:
    """Operations of RFC 6902."""
    fields = {
        "priorityClassName": found.metadata.name,
        "priority": found.value,
        "preemptionPolicy": found.preemption_policy,
    }
    return [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in fields.items()]
