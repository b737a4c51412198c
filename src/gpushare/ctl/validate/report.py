"""What is known of all GPU nodes: their checks, and what the policies say. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpushare.core.annotations import validation
from gpushare.core.annotations.validation import CHECKS, Check, Checks
from gpushare.core.facts import intree, names, objects

READY, IGNORED = "ready", "ignored"  # states of a policy
TRUE: Final = "true"
GOOD: Final = ("passed", "skipped")
NOT_SAID: Final = "gpushare-validator has said nothing about this node"
RUN_IT: Final = "is it there? kubectl get pods -A -o wide -l component=gpushare-validator; docs/validate.md"


class PolicyStatus(objects.Struct):
    state: str = ""
    conditions: list[objects.Condition] | None = None


class Policy(objects.Struct):
    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: PolicyStatus = msgspec.field(default_factory=PolicyStatus)

    @property
    def good(self) -> bool:
        return self.status.state in (READY, IGNORED)

    @property
    def message(self) -> str:
        """Of the first condition that says what is wrong."""
        wrong = {"Ready": "False", "Error": "True"}
        said = [c.message or c.reason or "" for c in self.status.conditions or () if wrong.get(c.type) == c.status]
        return next((text for text in said if text), "")


class NodeReport(msgspec.Struct):
    name: str
    checks: Checks

    @property
    def bad(self) -> list[str]:
        """The checks that are not good."""
        return [name for name, check in self.checks.items() if check.state not in GOOD]

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(check.way for check in self.checks.values() if check.way))


class Report(msgspec.Struct):
    nodes: list[NodeReport]  # by name
    policies: list[Policy]

    @property
    def good(self) -> bool:
        return not any(node.bad for node in self.nodes) and all(policy.good for policy in self.policies)


def is_gpu_node(node: intree.Node) -> bool:
    """Whether GPUs were found there, or somebody speaks of some."""
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    labelled = any(labels.get(label) == TRUE for label in (names.GPU_PRESENT, *names.PCI_LABELS))
    return labelled or names.VALIDATION in annotations or names.NODE_GPUS in annotations


def of_node(node: intree.Node) -> NodeReport:
    said = validation.read(node)
    if not said:
        return NodeReport(node.metadata.name, {"validator": Check("failed", "", NOT_SAID, RUN_IT)})
    known = [name for name in CHECKS if name in said]
    return NodeReport(node.metadata.name, {name: said[name] for name in (*known, *sorted(said.keys() - {*known}))})


def built(nodes: Iterable[intree.Node], policies: Sequence[Policy]) -> Report:
    by_name = sorted(nodes, key=lambda node: node.metadata.name)
    return Report([of_node(node) for node in by_name], list(policies))


def view(report: Report) -> dict[str, object]:
    """The same for programs."""
    return {
        "version": 1,
        "good": report.good,
        "policies": [
            {"name": policy.metadata.name, "state": policy.status.state, "message": policy.message}
            for policy in report.policies
        ],
        "nodes": [
            {
                "name": node.name,
                "good": not node.bad,
                "checks": [{"check": name, **_said(check)} for name, check in node.checks.items()],
            }
            for node in report.nodes
        ],
    }


def _said(check: Check) -> dict[str, str]:
    return {"state": check.state, "since": check.since, "why": check.why, "way": check.way}
