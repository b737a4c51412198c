"""Whether an object is already as it is wanted.

An apply that changes nothing still costs the API server a request, and with 1,000 nodes and 60 objects most passes
change nothing. So an apply is sent only if what is wanted is not part of what is there. What others add stays; where
Kubernetes merges a list by name, so does this. Every other list is one value: an extra rule of a ClusterRole, or an
extra argument, is a difference.
"""

import hashlib
from typing import Any, Final

import msgspec

from gpushare.operator.seeing.models import Live

# The lists that Kubernetes merges by a field of their items, as far as our objects have them.
MERGED_BY: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "webhooks": "name",
}

NOT_CONTENT: Final = ("metadata", "status")
FIELDS: Final = {
    field.encode_name: field.name for field in msgspec.structs.fields(Live) if field.name not in NOT_CONTENT
}


def as_wanted(live: Live, wanted: dict[str, Any]) -> bool:
    """`wanted`: an object as it is applied."""
    metadata = wanted["metadata"]
    content = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
    return (
        contains(live.metadata.labels, metadata.get("labels", {}))
        and contains(live.metadata.annotations, metadata.get("annotations", {}))
        and all(owner["uid"] == live.metadata.controller for owner in metadata.get("ownerReferences", ()))
        and all(key in FIELDS and contains(getattr(live, FIELDS[key]), value, key) for key, value in content.items())
    )


def fingerprint(live: Live) -> str:
    """Of all that an apply can change."""
    return digest([live.metadata.labels, live.metadata.annotations, [getattr(live, name) for name in FIELDS.values()]])


def contains(there: object, wanted: object, field: str = "") -> bool:
    """`field`: under which name both are found."""
    if isinstance(wanted, dict):
        if not isinstance(there, dict):
            return not wanted and there is None
        return all(contains(there.get(key), value, key) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        return _contains_list(there, wanted, MERGED_BY.get(field))
    if there is None:
        return not wanted  # the API server leaves out what is empty
    return there == wanted and isinstance(there, bool) == isinstance(wanted, bool)


def _contains_list(there: object, wanted: list[Any] | tuple[Any, ...], merged_by: str | None) -> bool:
    if not isinstance(there, list):
        return not wanted and there is None
    if merged_by is None:
        return len(there) == len(wanted) and all(contains(one, other) for one, other in zip(there, wanted, strict=True))
    items = {item.get(merged_by): item for item in there if isinstance(item, dict)}
    return all(contains(items.get(item.get(merged_by)), item) for item in wanted)


def digest(wanted: object) -> str:
    """Short, and the same for the same content."""
    return hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()[:16]
