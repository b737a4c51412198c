"""The kinds of objects that the operator makes, and the order in which they go.

What decides about other people's pods goes first, so that nobody waits for a program that is gone. Programs go next,
while their accounts and rights are still there: a part that ends puts things in order. Kinds of objects go last.
"""

from typing import Final, NamedTuple

from gpushare.kube import resources
from gpushare.kube.resources import Resource

ADMISSION: Final = "admissionregistration.k8s.io"
RBAC: Final = "rbac.authorization.k8s.io"
MONITORING: Final = "monitoring.coreos.com"
RENEWED: Final = "Lease"  # a program of ours writes to it every few seconds, and that is nothing to look at
SYSTEM: Final = "kube-system"  # some Roles must be where the objects are that they are about


class Kind(NamedTuple):
    """`elsewhere`: a namespace beside the operator's own where such objects may be."""

    name: str
    resource: Resource
    elsewhere: str = ""

    @property
    def api_version(self) -> str:
        group, version = self.resource.group, self.resource.version
        return f"{group}/{version}" if group else version

    @property
    def served_as(self) -> str:
        """As `Cluster.kinds` has it."""
        return f"{self.resource.plural}.{self.resource.group}/{self.resource.version}"


def _cluster(name: str, group: str, plural: str) -> Kind:
    return Kind(name, Resource(group, "v1", plural, namespaced=False))


# In the order in which they are deleted.
KINDS: Final = (
    _cluster("MutatingWebhookConfiguration", ADMISSION, "mutatingwebhookconfigurations"),
    _cluster("ValidatingWebhookConfiguration", ADMISSION, "validatingwebhookconfigurations"),
    _cluster("MutatingAdmissionPolicyBinding", ADMISSION, "mutatingadmissionpolicybindings"),
    _cluster("ValidatingAdmissionPolicyBinding", ADMISSION, "validatingadmissionpolicybindings"),
    _cluster("MutatingAdmissionPolicy", ADMISSION, "mutatingadmissionpolicies"),
    _cluster("ValidatingAdmissionPolicy", ADMISSION, "validatingadmissionpolicies"),
    Kind("DaemonSet", Resource("apps", "v1", "daemonsets")),
    Kind("Deployment", resources.DEPLOYMENTS),
    Kind("PodDisruptionBudget", Resource("policy", "v1", "poddisruptionbudgets")),
    Kind("PodMonitor", Resource(MONITORING, "v1", "podmonitors")),
    Kind("PrometheusRule", Resource(MONITORING, "v1", "prometheusrules")),
    Kind("Service", Resource("", "v1", "services")),
    Kind("ConfigMap", resources.CONFIG_MAPS),
    Kind("Secret", resources.SECRETS),
    Kind(RENEWED, resources.LEASES),
    _cluster("RuntimeClass", "node.k8s.io", "runtimeclasses"),
    Kind("PriorityClass", resources.PRIORITY_CLASSES),
    Kind("RoleBinding", Resource(RBAC, "v1", "rolebindings"), elsewhere=SYSTEM),
    _cluster("ClusterRoleBinding", RBAC, "clusterrolebindings"),
    Kind("Role", Resource(RBAC, "v1", "roles"), elsewhere=SYSTEM),
    _cluster("ClusterRole", RBAC, "clusterroles"),
    Kind("ServiceAccount", Resource("", "v1", "serviceaccounts")),
    Kind("CustomResourceDefinition", resources.CUSTOM_RESOURCES),
)
BY_NAME: Final = {kind.name: kind for kind in KINDS}
GOES: Final = {kind.name: place for place, kind in enumerate(KINDS)}
