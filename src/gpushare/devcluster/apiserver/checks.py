"""Checks of any object before a verb is carried out: decoding, names, preconditions, refusals. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from gpushare.devcluster.apiserver import status
from gpushare.devcluster.apiserver.kinds import decoding, rules
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Entry

OTHER_NAMESPACE: Final = "the namespace of the provided object does not match the namespace sent on the request"
UID_GONE: Final = (
    "the UID in the precondition ({wanted}) does not match the UID in record ({found}). "
    "The object might have been deleted and then recreated"
)
VERSION_GONE: Final = (
    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). "
    "The object might have been modified"
)


def read(kind: Kind, obj: Object) -> None:
    """Decodes in place as a real server does. An object that does not fit its type is a bad request."""
    cleaned = decoding.without_nulls(obj)
    obj.clear()
    obj |= cleaned
    if obj.pop("kind", kind.kind) != kind.kind:
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    obj.pop("apiVersion", None)
    understand(kind.kind, rules.read_metadata, obj)
    obj["metadata"].pop("managedFields", None)
    understand(kind.kind, kind.read, obj)


def understand(kind: str, reader: Callable[[Object], None], obj: Object) -> None:
    try:
        reader(obj)
    except (ValueError, TypeError, AttributeError) as error:
        raise status.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error


def stored(kind: Kind, entry: Entry) -> Object:
    """A stored object, ready to be changed. An object that was loaded in bulk gets its defaults here."""
    obj = entry.obj()
    kind.read(obj)
    return obj


def refuse(kind: Kind, name: str, causes: list[rules.Cause]) -> None:
    if causes:
        raise status.invalid(kind.full_kind, name, causes)


def namespace(meta: Object, namespace: str) -> None:
    if meta.get("namespace", namespace) != namespace:
        raise status.bad_request(OTHER_NAMESPACE)


def preconditions(kind: Kind, name: str, entry: Entry, wanted: Object) -> None:
    actual = {"uid": (entry.uid, UID_GONE), "resourceVersion": (str(entry.revision), VERSION_GONE)}
    for field, (value, sentence) in actual.items():
        if wanted.get(field) not in (None, value):
            raise status.conflict(kind.kind, name, sentence.format(wanted=wanted[field], found=value))


def copy_capacity(node: Object, listed: Mapping[str, str]) -> None:
    """As kubelet does. `listed`: the healthy devices of device plugins; no more than these are allocatable."""
    capacity, allocatable = node["status"].get("capacity") or {}, dict(node["status"].get("allocatable") or {})
    for resource in [*capacity, *allocatable]:
        if rules.is_extended(resource):
            allocatable.pop(resource, None)
            if resource in capacity:
                allocatable[resource] = capacity[resource]
    node["status"]["allocatable"] = {**allocatable, **listed}
