"""Kinds of objects as data: the names under which the API server serves them.

A new kind is a constant here or near its use; the client needs nothing else to read, list, watch, create, apply, patch
and delete it.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import quote

from gpushare.core.facts import vitals
from gpushare.kube.errors import ApiError


class Resource(NamedTuple):
    group: str  # "" is the core group
    version: str
    plural: str
    namespaced: bool = True

    def collection(self, namespace: str = "") -> str:
        """The path of all objects of this kind; without a namespace: of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{_segment(namespace)}/{self.plural}" if namespace else f"{root}/{self.plural}"

    def one_namespace(self, namespace: str) -> str:
        """The path where an object is created. `namespace` is "" if the kind has none."""
        if self.namespaced:
            _segment(namespace)  # left out, the path would be of another kind of request
        return self.collection(namespace)

    def item(self, namespace: str, name: str, sub: str = "") -> str:
        """The path of one object, or of a part of it such as its status. `namespace` is "" if the kind has none."""
        path = f"{self.one_namespace(namespace)}/{_segment(name)}"
        return f"{path}/{sub}" if sub else path


PODS: Final = Resource("", "v1", "pods")
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps")
EVENTS: Final = Resource("", "v1", "events")
SECRETS: Final = Resource("", "v1", "secrets")
GPU_NODES: Final = Resource(vitals.GROUP, vitals.VERSION, vitals.PLURAL, namespaced=False)
NODE_FEATURES: Final = Resource("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures")  # of node-feature-discovery
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)  # fmt: skip
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)  # fmt: skip
MUTATING_POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", namespaced=False
)  # fmt: skip
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
CUSTOM_RESOURCES: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
CLUSTER_POLICIES: Final = Resource("gpushare.io", "v1alpha1", "clusterpolicies", namespaced=False)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)


_PLAIN = re.compile("[a-z0-9.-]+")  # nearly all names: nothing in them has to be quoted


def _segment(name: str) -> str:
    """One part of a path. Names come from other people's requests and must not reach another path."""
    if name in ("", ".", ".."):
        raise ApiError(422, "Invalid", f'not a name: "{name}"')
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")
