"""deploy/crds/gpunodes.yaml says what the structs say, field for field, so that the API server keeps all we write."""

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from gpushare.core.facts import vitals
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.tables import printing
from tests.support import manifests

CRD = manifests.one("crds/gpunodes.yaml", "CustomResourceDefinition")
(VERSION,) = CRD["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def of_struct(kind: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every path and its type, as a schema would say it."""
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        yield from of_type(hints[field.name], f"{at}.{field.encode_name}")


def of_type(kind: Any, at: str) -> Iterator[tuple[str, str]]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is tuple:
        yield at, "array"
        yield from of_type(typing.get_args(kind)[0], f"{at}[]")
    elif kind in TYPES:
        yield at, TYPES[kind]
    else:
        yield at, "object"
        yield from of_struct(kind, at)


def of_schema(schema: Any, at: str) -> Iterator[tuple[str, str]]:
    yield at, schema["type"]
    for name, below in schema.get("properties", {}).items():
        yield from of_schema(below, f"{at}.{name}")
    if "items" in schema:
        yield from of_schema(schema["items"], f"{at}[]")


def test_the_schema_has_every_field_of_the_structs_and_no_other() -> None:
    assert dict(of_schema(SCHEMA, "status")) == dict(of_type(vitals.FullStatus, "status"))


def test_every_field_says_in_words_what_it_is() -> None:
    def silent(schema: Any, at: str) -> Iterator[str]:
        for name, below in schema.get("properties", {}).items():
            if not below.get("description"):
                yield f"{at}.{name}"
            yield from silent(below, f"{at}.{name}")
        if "items" in schema:
            yield from silent(schema["items"], f"{at}[]")

    assert list(silent(SCHEMA, "status")) == []


def test_its_names_are_those_that_everybody_uses() -> None:
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == f"{vitals.PLURAL}.{vitals.GROUP}"
    assert (spec["group"], VERSION["name"], spec["names"]["plural"], spec["names"]["kind"], spec["scope"]) == (
        vitals.GROUP, vitals.VERSION, vitals.PLURAL, vitals.KIND, "Cluster",
    )  # fmt: skip
    kind = table.BY_KIND[vitals.KIND]
    assert (list(kind.short), kind.namespaced) == (spec["names"]["shortNames"], False)
    assert VERSION["subresources"] == {"status": {}}


def test_conditions_are_kept_by_their_type() -> None:
    conditions = SCHEMA["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_the_embedded_cluster_prints_the_same_columns() -> None:
    printed = printing.table(table.BY_KIND[vitals.KIND], [], 0.0, metadata={})["columnDefinitions"]
    assert [column["name"] for column in printed] == ["Name", *(c["name"] for c in VERSION["additionalPrinterColumns"])]


def test_every_column_is_a_field_that_is_there() -> None:
    paths = {path for path, _ in of_schema(SCHEMA, ".status")} | {".metadata.creationTimestamp"}
    assert [c["jsonPath"] for c in VERSION["additionalPrinterColumns"] if c["jsonPath"] not in paths] == []


def _empty(value: object, at: str = "") -> list[str]:
    if isinstance(value, dict):
        return [place for key, inner in value.items() for place in _empty(inner, f"{at}.{key}")]
    if isinstance(value, list):
        return [place for number, inner in enumerate(value) for place in _empty(inner, f"{at}[{number}]")]
    return [at] if value is None else []


def test_no_description_is_cut_at_a_comma() -> None:
    """YAML takes the rest of an unquoted sentence in braces for a key without a value."""
    assert _empty(CRD) == []


def test_gpus_have_one_writer_and_are_no_work_to_merge() -> None:
    """Merged by key they cost the API server a sixth more, with each write of each node."""
    assert SCHEMA["properties"]["gpus"]["x-kubernetes-list-type"] == "atomic"
