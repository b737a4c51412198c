"""What deploy/ ships, as data: the rights our components run with, and the scheduler's configuration.

Authorization is on in the cluster, so the files are proved by being used: a missing right fails a test.
"""

from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAMESPACE = "kube-system"
EXTENDER = "gpushare-schd-extender"  # its service account
EXTENDER_USER = f"system:serviceaccount:{NAMESPACE}:{EXTENDER}"
EXTENDER_PORT = 12345
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def documents(name: str) -> list[Object]:
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text()) if document]


def rights(name: str = "extender.yaml") -> list[Object]:
    """Of a manifest all but the workload, which no kubelet would run here: tests start it as a process."""
    return [document for document in documents(name) if document["kind"] in RIGHTS]


def scheduler_configuration(
    kubeconfig: Path, *, name: str = "default-scheduler", extender: Object | None = None, **changes: Any
) -> Object:
    """Ours for kube-scheduler ≥ 1.25. `extender` changes words of its entry, `changes` of the rest."""
    (configuration,) = documents("scheduler/config-v1.yaml")
    (entry,) = configuration["extenders"]
    return {
        **configuration,
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name}],
        "extenders": [{**entry, **(extender or {})}],
        **changes,
    }
