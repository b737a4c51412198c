"""Writes the files of charts/gpushare that follow from others: its CRD, the schema of values, the operator's rights.

Most values become the ClusterPolicy, so their schema is that of the CRD; what only the chart knows is described below.
helm refuses values that do not fit, and says which key it is. Run it after a change: `.venv/bin/python -m
tools.render_chart`. A test compares what it would write with what is there.
"""

import copy
import json
from pathlib import Path
from typing import Any, Final

import yaml

from tools import chart_parts, chart_rights

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
CHART = "charts/gpushare"
CRD = "crds/clusterpolicies.yaml"
OWN_RIGHTS: Final = ROOT / "tools" / "operator_rights.yaml"
RIGHTS_HEADER: Final = "{{- /* Written by tools/render_chart.py: change it there. */ -}}\n"
CHART_ONLY: Final = ("image", "imagePullSecrets", "nfd", "psa")  # values that are no part of the policy
# What templates read. `--set NAME=null` takes a value away with its defaults.
READ: Final = ("image", "nfd", "psa", "operator", "daemonsets", "sharing", "devicePlugin", "validator", "scheduler")
# Components of NVIDIA's operator that we do not have. Values files of its users say of them that they are off.
ALWAYS_OFF: Final = (
    "ccManager", "cdi", "dcgm", "draDriver", "gdrcopy", "gds", "kataManager", "kataSandboxDevicePlugin", "psp",
    "sandboxDevicePlugin", "sandboxWorkloads",
)  # fmt: skip
NAME: Final = {"type": "string", "minLength": 1}
SWITCH: Final = {"type": "boolean"}


def rendered() -> dict[str, str]:
    """By path, what is to be in the file."""
    crd = (ROOT / "deploy" / CRD).read_text("utf-8")
    return {
        f"{CHART}/{CRD}": crd,
        f"{CHART}/values.schema.json": json.dumps(schema(yaml.safe_load(crd)), indent=2) + "\n",
        f"{CHART}/templates/rights.yaml": RIGHTS_HEADER + chart_rights.template(rights()),
    }


def rights() -> chart_rights.Rights:
    """All that the operator may do."""
    parts, namespace = chart_parts.everything(), chart_parts.NAMESPACE
    made, granted = chart_rights.made(parts, namespace), chart_rights.granted(parts, namespace)
    return chart_rights.together(
        chart_rights.own(OWN_RIGHTS), made, granted, chart_rights.bound(parts, namespace)
    )  # fmt: skip


def schema(crd: Object) -> Object:
    (version,) = crd["spec"]["versions"]
    policy = _strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])["properties"]
    _add_what_only_the_chart_knows(policy)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gpushare",
        **_object({**_chart_only(), **policy, **{name: _off() for name in ALWAYS_OFF}}),
        "required": list(READ),
    }


def _strict(given: Object) -> Object:
    """What the API server would prune is refused: a key that is not known is a typing error."""
    kept = {key: value for key, value in given.items() if not key.startswith("x-kubernetes-") and key != "default"}
    if given.get("x-kubernetes-int-or-string"):
        kept["type"] = ["integer", "string"]
        kept.pop("anyOf", None)
    if "properties" in given:
        kept["properties"] = {name: _strict(value) for name, value in given["properties"].items()}
        kept["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(given.get(key), dict):
            kept[key] = _strict(given[key])
    return kept


def _add_what_only_the_chart_knows(policy: Object) -> None:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    policy["operator"]["properties"] |= {
        "replicas": {"type": "integer", "minimum": 0},
        "upgradeCRD": SWITCH,
        "cleanupCRD": SWITCH,
        "resources": copy.deepcopy(policy["devicePlugin"]["properties"]["resources"]),
        "nodeSelector": texts,
        "tolerations": copy.deepcopy(policy["daemonsets"]["properties"]["tolerations"]),
    }
    policy["devicePlugin"]["properties"]["config"]["properties"] |= {"create": SWITCH, "data": texts}
    policy["devicePlugin"]["required"] = ["config"]
    del policy["finder"]["properties"]["enabled"]  # nfd.enabled is its switch


def _chart_only() -> Object:
    digest = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
    registry = {"type": "string", "pattern": "^([A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?)?$"}
    repository = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._/-]*$"}
    tag = {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"}
    return {
        "global": {"type": "object"},  # helm adds it where this chart is a part of another one
        "image": _object({"registry": registry, "repository": repository, "tag": tag, "digest": digest}),
        "imagePullSecrets": {"type": "array", "items": NAME},
        "nfd": _object({"enabled": SWITCH}),
        "psa": _object({"enabled": SWITCH}),
    }


def _off() -> Object:
    return {**_object({"enabled": {"const": False}}), "description": "Not served: it may only be off."}


def _object(properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def main() -> None:
    for path, text in rendered().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
