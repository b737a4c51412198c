"""NodeFeature objects of node-feature-discovery (NFD): which of them are about this node, and ours among them.

NFD's worker makes one for its node, with the node's name; NFD's master turns the labels of all NodeFeatures of a node
into labels of that node. So the worker's object says that NFD runs there.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from gpushare.core.facts import objects
from gpushare.kube import requests, resources
from gpushare.kube.resources import NODE_FEATURES

NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"


class _Spec(objects.Struct):
    labels: dict[str, str] | None = None


class NodeFeature(objects.Struct):
    """Without its features, which are large."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Sight:
    """A sink. `name`: of our own object, in `namespace`."""

    def __init__(self, node: str, namespace: str, name: str) -> None:
        self.node, self.namespace, self.name = node, namespace, name
        self.changed: Callable[[], None] = lambda: None
        self._labels: dict[str, dict[str, str]] = {}  # by namespace/name

    @property
    def nfd_runs(self) -> bool:
        return any(key.partition("/")[2] == self.node for key in self._labels)

    @property
    def ours(self) -> dict[str, str] | None:
        """The labels in our object; None: there is none."""
        return self._labels.get(f"{self.namespace}/{self.name}")

    def upsert(self, item: NodeFeature) -> None:
        self._labels[key(item)] = dict(item.spec.labels or {}) if item.metadata.name == self.name else {}
        self.changed()

    def remove(self, item: NodeFeature) -> None:
        self._labels.pop(key(item), None)
        self.changed()

    def relisted(self, kept: Set[str]) -> None:
        self._labels = {one: labels for one, labels in self._labels.items() if one in kept}
        self.changed()


def key(item: NodeFeature) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}" if item.metadata.name else ""


def query(node: str) -> dict[str, str]:
    """Selects those about this node."""
    return {"labelSelector": f"{NODE_LABEL}={node}"}


def apply(
    sight: Sight, manager: str, labels: Mapping[str, str], owners: Sequence[Mapping[str, Any]]
) -> requests.Request:
    metadata = {
        "name": sight.name,
        "namespace": sight.namespace,
        "labels": {NODE_LABEL: sight.node, "app": "gpushare", "component": manager},
        "ownerReferences": list(owners),
    }
    body = {
        "apiVersion": f"{NODE_FEATURES.group}/{NODE_FEATURES.version}", "kind": "NodeFeature", "metadata": metadata,
        "spec": {"labels": labels},
    }  # fmt: skip
    return requests.apply(resources.NODE_FEATURES, sight.namespace, sight.name, body, manager=manager, force=True)


def delete(sight: Sight) -> requests.Request:
    return requests.delete(resources.NODE_FEATURES, sight.namespace, sight.name)
