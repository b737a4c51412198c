"""Labels and annotations of a node by server-side apply: who applies them owns them under a name of its own.

An apply has all that its manager wants. What it applied before and does not name again goes, unless somebody else has
set the same; what others have set stays.
"""

from collections.abc import Mapping

from gpushare.core.facts import objects
from gpushare.kube import requests, resources


def apply(
    node: objects.Metadata,
    manager: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    *,
    force: bool = False,
    unchanged: bool = False,
) -> requests.Request:
    """409 if that node is gone (without its uid, an apply would make a new one), or if another manager owns one of the
    keys with another value and this is not by `force`. `unchanged`: also if anything of the node has changed."""
    metadata: dict[str, object] = {"name": node.name, "uid": node.uid, "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    if unchanged:
        metadata["resourceVersion"] = node.resource_version
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return requests.apply(resources.NODES, "", node.name, body, manager=manager, force=force)


def take_back(node: objects.Metadata, manager: str) -> requests.Request:
    """All that this manager has applied."""
    return apply(node, manager, {})
