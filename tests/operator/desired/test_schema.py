"""deploy/crds/clusterpolicies.yaml says what the structs say: fields, types, defaults, choices. So what the API server
lets through can be read, and what it fills in is what the operator would take."""

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import policies
from gpushare.operator.desired.policy import Object, Spec
from tests.support import manifests

CRD = manifests.one("crds/clusterpolicies.yaml", "CustomResourceDefinition")
(VERSION,) = CRD["spec"]["versions"]
ROOT = VERSION["schema"]["openAPIV3Schema"]
SPEC, STATUS = (ROOT["properties"][name] for name in ("spec", "status"))
TYPES = {str: "string", int: "integer", bool: "boolean"}
FREE = "object of Kubernetes"  # fields of pods: the schema names them, the operator hands them on
OF_PODS = {"resources", "env", "tolerations"}
LABELS = "object of strings"

Said = tuple[str, str, Any, tuple[str, ...]]  # path, type, default, choices


def of_struct(kind: Any, at: str) -> Iterator[Said]:
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        yield from of_type(hints[field.name], f"{at}.{field.encode_name}", _default(field))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if isinstance(default, msgspec.Struct):
        return {}  # its fields have their own
    return list(default) if isinstance(default, tuple) else default


def of_type(kind: Any, at: str, default: Any) -> Iterator[Said]:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        yield at, "string", default, inside
    elif kind == Object or (origin is tuple and inside[0] == Object):
        yield at, FREE, default or None, ()
    elif origin is tuple:
        yield at, f"array of {TYPES[inside[0]]}", default or None, ()
    elif origin is dict:
        yield at, LABELS, default or None, ()
    elif kind in TYPES:
        yield at, TYPES[kind], None if default == "" else default, ()
    else:
        assert isinstance(kind, type), kind
        assert not isinstance(kind, types.UnionType)
        yield at, "object", default, ()
        yield from of_struct(kind, at)


def of_schema(schema: Any, at: str) -> Iterator[Said]:
    for name, below in schema["properties"].items():
        path, default = f"{at}.{name}", below.get("default")
        if name in OF_PODS:
            yield path, FREE, default, ()
        elif "additionalProperties" in below:
            yield path, LABELS, default, ()
        elif below["type"] == "object":
            yield path, "object", default, ()
            yield from of_schema(below, path)
        else:
            kind = f"array of {below['items']['type']}" if below["type"] == "array" else below["type"]
            yield path, kind, default, () if path in CHECKED_ONLY else tuple(below.get("enum", ()))


CHECKED_ONLY = {"spec.scheduler.policy"}  # the operator hands it on


def test_the_schema_has_every_field_of_the_structs_with_its_default_and_no_other() -> None:
    assert {said[0]: said for said in of_schema(SPEC, "spec")} == {said[0]: said for said in of_struct(Spec, "spec")}


def test_policies_of_the_extender_are_those_that_it_has() -> None:
    assert SPEC["properties"]["scheduler"]["properties"]["policy"]["enum"] == ["", *policies.POLICIES]


def every_field(schema: Any, at: str) -> Iterator[tuple[str, Any]]:
    for name, below in schema.get("properties", {}).items():
        yield f"{at}.{name}", below
        yield from every_field(below, f"{at}.{name}")
    if "items" in schema:
        yield from every_field(schema["items"], f"{at}[]")


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_says_in_a_sentence_what_it_is(part: str) -> None:
    silent = [path for path, below in every_field(ROOT["properties"][part], part) if not below.get("description")]
    unfinished = [
        path for path, below in every_field(ROOT["properties"][part], part) if not below["description"].endswith(".")
    ]
    assert (silent, unfinished) == ([], [])


def test_no_field_takes_anything() -> None:
    def loose(schema: Any, at: str) -> Iterator[str]:
        if isinstance(schema, dict):
            if schema.get("x-kubernetes-preserve-unknown-fields"):
                yield at
            for name, below in schema.items():
                yield from loose(below, f"{at}.{name}")

    assert list(loose(ROOT, "")) == []


def test_no_description_is_cut_at_a_comma() -> None:
    """YAML takes the rest of an unquoted sentence in braces for a key without a value."""

    def empty(value: object, at: str = "") -> list[str]:
        if isinstance(value, dict):
            return [place for key, inner in value.items() for place in empty(inner, f"{at}.{key}")]
        if isinstance(value, list):
            return [place for number, inner in enumerate(value) for place in empty(inner, f"{at}[{number}]")]
        return [at] if value is None else []

    assert empty(CRD) == []


def test_people_see_state_and_age_as_with_nvidias_operator() -> None:
    columns = [(one["name"], one["jsonPath"]) for one in VERSION["additionalPrinterColumns"]]
    assert columns == [("Status", ".status.state"), ("Age", ".metadata.creationTimestamp")]
    assert VERSION["subresources"] == {"status": {}}
    assert (CRD["spec"]["scope"], CRD["spec"]["names"]["kind"]) == ("Cluster", "ClusterPolicy")
    assert "shortNames" not in CRD["spec"]["names"]


def test_lists_of_the_status_are_kept_by_name() -> None:
    keys = {name: STATUS["properties"][name]["x-kubernetes-list-map-keys"] for name in ("conditions", "components")}
    assert keys == {"conditions": ["type"], "components": ["name"]}
