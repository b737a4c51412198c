"""The files of deploy/ as data: the rights of gpushare's components, and the scheduler's configuration.

Authorization is on in the cluster, so using these files tests them: a missing right fails a test.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.harness import network
from tests.support.nvml import state

STATE = "gpus"
Object = dict[str, Any]
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
NAMESPACE = "kube-system"
EXTENDER = "gpushare-schd-extender"  # its service account
EXTENDER_USER = f"system:serviceaccount:{NAMESPACE}:{EXTENDER}"
EXTENDER_PORT = 12345
NODE_PORT = 12346
EXTENDER_METRICS = f"{network.ADDRESS}:12348"
WORKLOADS = ("Deployment", "DaemonSet")
MOCK = "/mock"  # where containers find the stand-in for NVIDIA's library
MACHINE = {
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": "6443",
    "LD_LIBRARY_PATH": MOCK,
    state.VARIABLE: f"{MOCK}/{STATE}",
}
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def documents(name: str, switched_on: Sequence[str] = ()) -> list[Object]:
    """`switched_on`: words of lines that are comments in the file; there the sign is removed."""
    lines = (DEPLOY / name).read_text().splitlines()
    lines = [line.replace("# ", "", 1) if any(words in line for words in switched_on) else line for line in lines]
    return [document for document in yaml.safe_load_all("\n".join(lines)) if document]


def rights(name: str = "extender.yaml") -> list[Object]:
    """All of a manifest but the workload: there is no kubelet, tests start it as a process."""
    return [document for document in documents(name) if document["kind"] in RIGHTS]


def expanded(word: str) -> str:
    """Of a container's arguments, as kubelet gives it to a process on this machine's network."""
    return word.replace("$(POD_IP)", network.ADDRESS)


def metrics_word() -> str:
    """The one of extender.yaml that says where Prometheus asks."""
    (deployment,) = (document for document in documents("extender.yaml") if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (word,) = (word for word in container["args"] if word.startswith("--metrics-listen="))
    return expanded(word)


def scheduler_tuning() -> tuple[list[str], dict[str, str]]:
    """Flags and environment that gpu-scheduler.yaml offers for kube-scheduler."""
    offered = documents("gpu-scheduler.yaml", ("# args: [--feature-gates", "# env: [{name: GOGC"))
    (deployment,) = (document for document in offered if document["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return container["args"], {one["name"]: one["value"] for one in container["env"]}


def scheduler_policy(file: str, *, extender: Object | None = None) -> Object:
    """For kube-scheduler ≤ 1.22. `extender`: changes to the extender's entry."""
    (policy,) = documents(f"scheduler/{file}")
    (entry,) = policy["extenders"]
    return {**policy, "extenders": [{**entry, **(extender or {})}]}


def scheduler_configuration(
    kubeconfig: Path,
    *,
    file: str = "config-v1.yaml",
    name: str = "default-scheduler",
    extender: Object | None = None,
    **changes: Any,
) -> Object:
    """By default for kube-scheduler ≥ 1.25. `extender`: changes to the extender's entry. `changes`: to the rest."""
    (configuration,) = documents(f"scheduler/{file}")
    (entry,) = configuration["extenders"]
    return {
        **configuration,
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name}],
        "extenders": [{**entry, **(extender or {})}],
        **changes,
    }


def for_test_machine(document: Object, gpus: Path) -> Object:
    """A workload as it is in deploy/, with what a machine without NVIDIA's driver and kube-proxy needs.

    `gpus` has the stand-in for NVIDIA's library and the description of its GPUs (tests/support/nvml).
    """
    changed = copy.deepcopy(document)
    if changed["kind"] in WORKLOADS:
        pod = changed["spec"]["template"]["spec"]
        assert pod["hostNetwork"], "the API server is on the host's network only"
        pod.setdefault("volumes", []).append({"name": "mock", "hostPath": {"path": str(gpus), "type": "Directory"}})
        for container in pod["containers"]:
            container.setdefault("volumeMounts", []).append({"name": "mock", "mountPath": MOCK, "readOnly": True})
            container.setdefault("env", []).extend({"name": name, "value": value} for name, value in MACHINE.items())
            words = container.get("args") or container.get("command") or []
            samples = not any(word.startswith("--sample-seconds=") for word in words)
            if samples and {"node", "device-plugin", "collector"} & set(words):
                words.append("--sample-seconds=1")  # so long may tests wait until the page of metrics is true
    return changed


def counting_in(unit: str, document: Object) -> Object:
    """The change for nodes that count in another unit."""
    changed = copy.deepcopy(document)
    if changed["kind"] in WORKLOADS:
        for container in changed["spec"]["template"]["spec"]["containers"]:
            for words in (container.get("command", []), container.get("args", [])):
                words[:] = [f"--memory-unit={unit}" if word.startswith("--memory-unit=") else word for word in words]
    return changed
