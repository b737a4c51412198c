"""What a PATCH does to an object: JSON merge patch (RFC 7386) and the part of strategic merge patch that clients use.

Pure: the object itself is not changed. A strategic patch merges maps as a merge patch does, and merges the lists named
below by key instead of replacing them: so kube-scheduler writes one condition.
"""

from typing import Any, Final

from gpushare.devcluster.apiserver import status
from gpushare.devcluster.apiserver.status import Object

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
TYPES: Final = (MERGE, STRATEGIC)
APPLY_PREFIX: Final = "application/apply-patch+"  # kubectl apply --server-side
APPLY_MANAGER: Final = "kubectl-client-side-apply"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# The lists a strategic merge patch merges by key, by the name of the list's field.
MERGE_KEYS: Final = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ownerReferences": "uid",
    "taints": "key",
}
# These only set the order of what is merged anyway.
_ORDERS: Final = ("$setElementOrder/", "$retainKeys")


def check(content_type: str) -> None:
    if content_type not in TYPES:
        raise status.unsupported_media_type(list(TYPES))


def apply(content_type: str, target: Object, patch: Any) -> Object:
    """The object after the patch."""
    check(content_type)
    if not isinstance(patch, dict):
        raise status.bad_request("error decoding patch: a patch is a JSON object")
    merged: Object = _merge(target, patch, strategic=content_type == STRATEGIC)
    return merged


def same_but_for_last_applied(new: Object, old: Object) -> bool:
    """Whether nothing changed but the annotation in which kubectl apply keeps what it applied."""
    return _without_note(new) == _without_note(old)


def _without_note(obj: Object) -> Object:
    annotations = obj["metadata"].get("annotations") or {}
    others = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**obj, "metadata": {**obj["metadata"], "annotations": others}}


def _merge(target: Any, patch: Any, strategic: bool) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if strategic and key.startswith("$"):
            if not key.startswith(_ORDERS) and (key, value) != ("$patch", "merge"):
                raise status.not_supported(f"{key} in a strategic merge patch")
            continue
        if value is None:
            merged.pop(key, None)
        elif strategic and isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = _merge(merged.get(key), value, strategic)
    return merged


def _merge_list(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise status.bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != item[key]]
        elif at is None:
            merged.append(_merge({}, item, strategic=True))
        else:
            merged[at] = _merge(merged[at], item, strategic=True)
    return merged
