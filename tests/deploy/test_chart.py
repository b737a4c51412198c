"""The chart as files: what helm makes of them is tested in tests/e2e/test_chart.py."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

import gpushare
from gpushare.operator.desired import policy
from tests.support import manifests
from tools import render_chart

Object = dict[str, Any]
CHART = manifests.ROOT / render_chart.CHART
VALUES = (CHART / "values.yaml").read_text("utf-8")
KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z]\w*):(?P<rest>.*)$")


@pytest.mark.parametrize("path", sorted(render_chart.rendered()))
def test_the_file_is_what_would_be_written(path: str) -> None:
    written = (manifests.ROOT / path).read_text("utf-8")
    assert written == render_chart.rendered()[path], ".venv/bin/python -m tools.render_chart"


def test_it_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (gpushare.__version__, gpushare.__version__)


def test_the_schema_knows_every_field_of_the_policy_and_what_only_the_chart_has() -> None:
    known = set(_schema()["properties"])
    assert known == {*_fields(), *render_chart.CHART_ONLY, *render_chart.ALWAYS_OFF, "global"}


def test_only_what_is_a_field_of_the_policy_becomes_one() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text("utf-8")
    (omitted,) = re.findall(r"omit \$values (.*?) -\}\}", helpers, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', omitted)) == {*render_chart.CHART_ONLY, *render_chart.ALWAYS_OFF, "global"}


def test_the_values_have_every_component_and_nothing_that_the_schema_refuses() -> None:
    values = yaml.safe_load(VALUES)
    assert set(values) == {*_fields(), *render_chart.CHART_ONLY}
    assert list(_refused(values, _schema(), "")) == []


def test_the_schema_refuses_what_it_does_not_know_everywhere() -> None:
    open_ones = {"global", "labels", "annotations", "nodeSelector", "data", "requests", "limits", "matchLabels"}
    found = [path for path, schema in _objects(_schema(), "") if schema.get("additionalProperties") is not False]
    assert {path.rpartition("/")[2] for path in found} <= open_ones


def test_a_value_that_nobody_changes_is_the_default_of_the_policy() -> None:
    """So a policy written by hand and one of the chart mean the same."""
    values = yaml.safe_load(VALUES)
    del values["devicePlugin"]["config"]["create"], values["devicePlugin"]["config"]["data"]
    values["operator"] = {"runtimeClass": values["operator"]["runtimeClass"]}
    spec = {name: value for name, value in values.items() if name in _fields()}
    assert msgspec.convert(spec, policy.Spec) == policy.Spec()


def test_every_value_is_explained() -> None:
    """By a comment behind it, or by one above it."""
    lines = VALUES.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if KEY.match(line) and not _is_a_section(line, lines):
            assert " # " in line or before.strip().startswith("#"), line


def test_no_line_of_the_values_is_broken_by_an_editor() -> None:
    assert max(map(len, VALUES.splitlines())) <= 120


def test_the_switches_of_the_guide_are_there() -> None:
    values = yaml.safe_load(VALUES)
    for name in ("driver", "migManager", "vgpuManager", "vgpuDeviceManager", "vfioManager"):
        assert values[name]["enabled"] is False
    assert values["nfd"]["enabled"] is True
    assert values["daemonsets"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


def _schema() -> Object:
    schema: Object = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return schema


def _fields() -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(policy.Spec)}


def _is_a_section(line: str, lines: list[str]) -> bool:
    """A key whose own keys say it all: operator, and the components that are not served."""
    at = lines.index(line)
    return line.endswith(":") and " # " in lines[at + 1]


def _refused(value: Any, schema: Object, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        if name in schema.get("properties", {}):
            yield from _refused(inner, schema["properties"][name], f"{path}/{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{path}/{name}"


def _objects(schema: Object, path: str) -> Iterator[tuple[str, Object]]:
    if schema.get("type") == "object":
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _objects(inner, f"{path}/{name}")
    if "items" in schema:
        yield from _objects(schema["items"], path)
