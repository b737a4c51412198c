"""What kube-scheduler must be told about the extender, in each format it has known.

Policy (up to 1.22), and KubeSchedulerConfiguration v1beta1 (1.19 to 1.22), v1beta3 (1.23 to 1.28) and v1 (from 1.25
on). Pure. The files in deploy/scheduler are written from this too (tools/render_scheduler.py, with the reasons).
"""

from typing import Any, Final

from gpushare.core.facts import kinds, names

Object = dict[str, Any]

PORT: Final = 12345
TIMEOUT_SECONDS: Final = 5
FOLDER: Final = "/etc/kubernetes/gpushare"  # on the control plane, and in kube-scheduler's container
KUBEADM_KUBECONFIG: Final = "/etc/kubernetes/scheduler.conf"
GROUP: Final = "kubescheduler.config.k8s.io"
KIND: Final = "KubeSchedulerConfiguration"

EXTENDER: Final[Object] = {
    "urlPrefix": f"http://127.0.0.1:{PORT}{names.EXTENDER_PATH}",
    "filterVerb": "choose",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
    "weight": 1000,
    "httpTimeout": f"{TIMEOUT_SECONDS}s",
    "nodeCacheCapable": True,
    "ignorable": False,
    "managedResources": [{"name": resource, "ignoredByScheduler": False} for resource in kinds.BY_RESOURCE],
}
OVER_TLS: Final[Object] = {
    "urlPrefix": f"https://127.0.0.1:32766{names.EXTENDER_PATH}",
    "enableHTTPS": True,
    "tlsConfig": {
        "serverName": "gpushare-schd-extender",
        "caFile": f"{FOLDER}/ca.crt",
        "certFile": f"{FOLDER}/client.crt",
        "keyFile": f"{FOLDER}/client.key",
    },
}
# A Policy without priorities has the default ones, LeastRequestedPriority among them. kube-scheduler 1.22 with -v=2 or
# more does not start then: it fails to log the configuration of that one (or of MostRequestedPriority;
# kubernetes#105202). So the others are named, each with its default weight. These are the same from 1.19 to 1.22.
PRIORITIES: Final = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    "EvenPodsSpreadPriority": 2,
}


def extender(url: str = "") -> Object:
    """The entry of a KubeSchedulerConfiguration. `url`: where the extender answers, if not where it does by default."""
    entry = {**EXTENDER, **(OVER_TLS if url.startswith("https:") else {})}
    return {**entry, "urlPrefix": url} if url else entry


def for_policy(entry: Object) -> Object:
    """The same entry in a Policy, where a duration is nanoseconds."""
    return {**entry, "httpTimeout": TIMEOUT_SECONDS * 10**9}


def policy(entry: Object) -> Object:
    """For kube-scheduler up to 1.22. It cannot say percentageOfNodesToScore."""
    priorities = [{"name": name, "weight": weight} for name, weight in PRIORITIES.items()]
    return {"kind": "Policy", "apiVersion": "v1", "extenders": [for_policy(entry)], "priorities": priorities}


def configuration(version: str, entry: Object, kubeconfig: str = KUBEADM_KUBECONFIG) -> Object:
    """For kube-scheduler from 1.19 on, in place of its default configuration."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": KIND,
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": True},
        "percentageOfNodesToScore": 100,
        "extenders": [entry],
    }
