"""Writes every scheduler configuration in deploy/ from the one description in gpushare.install.entries.

kube-scheduler has known several formats for the same thing: Policy (up to 1.22), and KubeSchedulerConfiguration v1beta1
(1.19 to 1.22), v1beta3 (1.23 to 1.28) and v1 (from 1.25 on). Run it after a change: `.venv/bin/python -m
tools.render_scheduler`. A test compares what it would write with what is there.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from gpushare.install import entries

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by tools/render_scheduler.py: change it there.\n"
SECOND_SCHEDULER = "gpu-scheduler"
NAMESPACE, KETI_NAMESPACE = "kube-system", "gpu"
WHY = {
    "priorities": "all default priorities of kube-scheduler except LeastRequestedPriority: with it, or without this "
    "list, 1.22 does not start if its verbosity is 2 or more (kubernetes#105202)",
    "kubeconfig": "the path that kubeadm uses; with a configuration file the scheduler ignores the flag --kubeconfig",
    "percentageOfNodesToScore": "with less, only some nodes are offered, and a pod may wait although another node has "
    "room on one GPU",
    "filterVerb": "choose answers the best node alone, so nothing has to be scored; if other extenders or the "
    "scheduler's own scores shall count too, write filter",
    "weight": "only for filter: in-tree scores add up to 1,400 and ours to 100 times the weight, so ours decide",
    "httpTimeout": "the extender answers a binding within 4 s, even if the answer is only that it is still in progress",
    "nodeCacheCapable": "send names of nodes, not whole nodes",
    "ignorable": "with true, pods would be bound without a GPU while the extender is away",
    "ignoredByScheduler": "the scheduler compares the node's total itself, and asks only where that fits",
    "serverName": "the name in the certificate, whatever address urlPrefix has",
}
TLS_WHY = {
    "urlPrefix": "where kube-proxy runs with ipvs or nftables, write this machine's own address instead of 127.0.0.1"
}


def second_scheduler(namespace: str = NAMESPACE, *, of_all_pods: bool = False) -> dict[str, Any]:
    """For a kube-scheduler of our own, in a pod: its credentials are the pod's. `of_all_pods`: it asks about those that
    ask for no GPU, too."""
    whole = entries.configuration("v1", entries.extender())
    del whole["clientConnection"]
    whole["leaderElection"] = {
        "leaderElect": True,
        "resourceName": SECOND_SCHEDULER,
        "resourceNamespace": namespace,
    }
    if of_all_pods:
        (extender,) = whole["extenders"]
        whole["extenders"] = [{key: value for key, value in extender.items() if key != "managedResources"}]
    whole["profiles"] = [{"schedulerName": SECOND_SCHEDULER}]
    return whole


def rendered() -> dict[str, str]:
    """Path below the root and content of every file."""
    manifest, keti = "deploy/gpu-scheduler.yaml", "deploy/keti/deployments/gpu-scheduler.yaml"
    plain, tls = entries.extender(), entries.extender(entries.OVER_TLS["urlPrefix"])
    policy = entries.policy(plain)
    configurations = {version: entries.configuration(version, plain) for version in ("v1beta1", "v1beta3", "v1")}
    of_keti = commented(second_scheduler(KETI_NAMESPACE, of_all_pods=True), WHY)
    return {
        "deploy/scheduler/policy.json": json.dumps(policy, indent=2) + "\n",
        "deploy/scheduler/policy.yaml": HEADER + commented(policy, WHY),
        "deploy/scheduler/config-v1beta1.yaml": HEADER + commented(configurations["v1beta1"], WHY),
        "deploy/scheduler/config-v1beta3.yaml": HEADER + commented(configurations["v1beta3"], WHY),
        "deploy/scheduler/config-v1.yaml": HEADER + commented(configurations["v1"], WHY),
        "deploy/scheduler/config-v1-tls.yaml": HEADER + commented(entries.configuration("v1", tls), {**WHY, **TLS_WHY}),
        manifest: between_marks((ROOT / manifest).read_text("utf-8"), commented(second_scheduler(), WHY)),
        keti: between_marks((ROOT / keti).read_text("utf-8"), of_keti),
    }


def commented(content: dict[str, Any], why: dict[str, str]) -> str:
    """YAML with the reason above the first line that needs one."""
    lines, told = [], set()
    for line in yaml.safe_dump(content, sort_keys=False).splitlines():
        key = line.strip(" -").partition(":")[0]
        if key in why and key not in told:
            told.add(key)
            lines.append(f"{' ' * _indent(line)}# {why[key]}")
        lines.append(line)
    return "\n".join(lines) + "\n"


def between_marks(text: str, content: str) -> str:
    """The text with everything between its two marks replaced; the first mark says how far it is indented."""
    lines = text.splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if mark in line) for mark in ("# rendered:", "# :rendered"))
    indent = " " * _indent(lines[begin])
    inside = [indent + line if line else "" for line in content.splitlines()]
    return "\n".join([*lines[: begin + 1], *inside, *lines[end:]]) + "\n"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


if __name__ == "__main__":
    for path, text in rendered().items():
        (ROOT / path).write_text(text, "utf-8")
