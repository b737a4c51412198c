"""The containers of a pod as JSON, and what admission adds to them: env entries, mounts and volumes.

An `Addition` is data: the stand-in API server applies it in place, the webhook answers it as a JSONPatch. Pods come
from anybody, and before the API server has checked them: every field may be missing or of another type.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpushare.core.facts import names

Object = dict[str, Any]

APPS: Final = "containers"
INITS: Final = "initContainers"
MOST: Final = 500  # containers of each list that are looked through
REFERENCE: Final = "metadata.annotations['{key}']"
_PINNED: Final = f"metadata.annotations['{names.VISIBLE_PREFIX}"


class Addition(NamedTuple):
    """Entries of one list of a pod, after those it has."""

    steps: tuple[str | int, ...]  # from the spec to the list: ("containers", 0, "env")
    entries: list[Object]


def spec(pod: Object) -> Object:
    return _mapping(pod.get("spec"))


def listed(pod: Object, field: str) -> list[Object]:
    """The containers of one list; what is no container counts as an empty one, so that positions stay."""
    return [_mapping(one) for one in _entries(spec(pod).get(field))]


def annotations(pod: Object) -> Object:
    return _mapping(_mapping(pod.get("metadata")).get("annotations"))


def limits(container: Object) -> Object:
    return _mapping(_mapping(container.get("resources")).get("limits"))


def env(container: Object) -> list[Any]:
    return _entries(container.get("env"))


def mounts(container: Object) -> list[Object]:
    return [_mapping(one) for one in _entries(container.get("volumeMounts"))]


def volumes(pod: Object) -> list[Object]:
    return [_mapping(one) for one in _entries(spec(pod).get("volumes"))]


def reference(name: str, annotation: str) -> Object:
    """An env entry that takes its value from an annotation of the pod."""
    found = {"apiVersion": "v1", "fieldPath": REFERENCE.format(key=annotation)}
    return {"name": name, "valueFrom": {"fieldRef": found}}


def pinned_by(container: Object) -> str:
    """The path of the annotation of ours from which its last env entry takes the GPUs; empty: it is not pinned."""
    entries = env(container)
    last = _mapping(entries[-1]) if entries else {}
    if last.get("name") != names.VISIBLE_DEVICES:
        return ""
    path = _mapping(_mapping(last.get("valueFrom")).get("fieldRef")).get("fieldPath")
    return path if isinstance(path, str) and path.startswith(_PINNED) else ""


def add(pod: Object, additions: Iterable[Addition]) -> None:
    """In place."""
    for (*steps, last), entries in additions:
        holder = _at(pod, steps)  # a stored pod: it has been decoded
        holder[last] = [*_entries(holder.get(last)), *entries]


def json_patch(pod: Object, additions: Iterable[Addition]) -> Iterator[Object]:
    """The same as operations of RFC 6902."""
    for steps, entries in additions:
        path = "/".join(("/spec", *map(str, steps)))
        if not _entries(_mapping(_at(pod, steps[:-1])).get(str(steps[-1]))):
            yield {"op": "add", "path": path, "value": entries}
        else:
            yield from ({"op": "add", "path": f"{path}/-", "value": entry} for entry in entries)


def _at(pod: Object, steps: Iterable[str | int]) -> Any:
    """What is there in the spec: a container, or the spec itself."""
    found: Any = pod["spec"]
    for step in steps:
        found = found[step]
    return found


def _entries(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}
