"""Rules of kube-apiserver for any kind: names, labels, annotations, amounts.

Pure functions from an object to causes (why it is refused). Only rules that gpushare can run into are here, in
kube-apiserver's words.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from gpushare.devcluster.apiserver.kinds import decoding, quantity
from gpushare.devcluster.apiserver.status import Object

Cause = tuple[str, str, str]  # field, type, sentence

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_SUPPORTED: Final = "FieldValueNotSupported"

NAME_MISSING: Final = "Required value: name or generateName is required"
SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
BAD_KEY: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_LABEL: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
EMPTY: Final = "must not be empty"
NOT_WHOLE: Final = "must be an integer"
NEGATIVE: Final = "must be greater than or equal to 0"
ANNOTATIONS_LIMIT: Final = 262144

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?", re.ASCII)


def invalid(field: str, value: object, sentence: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return field, INVALID, f"Invalid value: {shown}: {sentence}"


def subdomain_name(name: str) -> str | None:
    return None if len(name) <= 253 and _SUBDOMAIN.fullmatch(name) else SUBDOMAIN


def label_name(name: str) -> str | None:
    return None if len(name) <= 63 and _LABEL.fullmatch(name) else LABEL


def path_name(name: str) -> str | None:
    return "may not contain '/' or '%'" if "/" in name or "%" in name or name in (".", "..") else None


def metadata(obj: Object, name_rule: Callable[[str], str | None]) -> list[Cause]:
    """The rules for names, labels and annotations that every kind obeys."""
    meta = obj["metadata"]
    causes: list[Cause] = []
    if not meta.get("name"):
        causes.append(("metadata.name", REQUIRED, NAME_MISSING))
    elif complaint := name_rule(meta["name"]):
        causes.append(invalid("metadata.name", meta["name"], complaint))
    for key, value in (meta.get("labels") or {}).items():
        if not _KEY.fullmatch(key):
            causes.append(invalid("metadata.labels", key, BAD_KEY))
        if not _VALUE.fullmatch(value):
            causes.append(invalid("metadata.labels", value, BAD_LABEL))
    for owner in meta.get("ownerReferences") or []:
        missing = [part for part in ("apiVersion", "kind", "name", "uid") if not owner.get(part)]
        causes += [invalid(f"metadata.ownerReferences.{part}", "", EMPTY) for part in missing]
    annotations = meta.get("annotations") or {}
    causes += [invalid("metadata.annotations", key, BAD_KEY) for key in annotations if not _KEY.fullmatch(key)]
    if sum(len(key) + len(value) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        sentence = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        causes.append(("metadata.annotations", TOO_LONG, sentence))
    return causes


def read_metadata(obj: Object) -> None:
    """Refuses what a real server cannot decode: names must be strings, labels and annotations maps of strings."""
    meta = obj.get("metadata")
    if meta is None:
        obj["metadata"] = meta = {}
    for field in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if not isinstance(meta.get(field, ""), str):
            raise ValueError(f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field} of type string")
    for field in ("labels", "annotations"):
        values = meta.get(field)
        if values is None:
            meta.pop(field, None)
        elif not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            what = "json: cannot unmarshal a value other than a string into Go struct field ObjectMeta.metadata."
            raise ValueError(f"{what}{field} of type string")
    decoding.check(meta, decoding.Metadata)


def is_extended(resource: str) -> bool:
    """A resource with its own domain, such as aliyun.com/gpu-mem: whole numbers only, never overcommitted."""
    return "/" in resource and not resource.startswith("requests.") and "kubernetes.io/" not in resource


def canonical_amounts(amounts: Any) -> None:
    """Rewrites a map of resource to quantity in place."""
    if isinstance(amounts, dict):
        for resource, amount in amounts.items():
            amounts[resource] = quantity.canonical(amount)


def amounts(quantities: Object, field: str) -> list[Cause]:
    """Quantities are not negative; those of extended resources are whole."""
    causes: list[Cause] = []
    for resource, amount in quantities.items():
        exact = quantity.value(amount)
        if exact < 0:
            causes.append(invalid(f"{field}[{resource}]", amount, NEGATIVE))
        if is_extended(resource) and exact.denominator != 1:
            causes.append(invalid(f"{field}[{resource}]", amount, NOT_WHOLE))
    return causes
