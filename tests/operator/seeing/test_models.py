"""Whatever a manifest has, the operator can compare."""

from pathlib import Path
from typing import Any

import pytest

from gpushare.operator.applying.comparing import FIELDS
from gpushare.operator.seeing.keys import WORKLOADS
from gpushare.operator.seeing.kinds import BY_NAME, GOES
from tests.support import yaml_text

DEPLOY = Path(__file__).parents[3] / "deploy"
HEAD = {"apiVersion", "kind", "metadata"}
NOT_FOR_THE_OPERATOR = ("keti", "scheduler", "install-scheduler.yaml")


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in sorted(DEPLOY.rglob("*.yaml")):
        name = str(file.relative_to(DEPLOY))
        if name.split("/", maxsplit=1)[0] in NOT_FOR_THE_OPERATOR or name.startswith("monitoring/rules"):
            continue
        found += [(name, one) for one in yaml_text.documents(file.read_text()) if one and "kind" in one]
    return found


@pytest.mark.parametrize(("file", "document"), documents())
def test_kind_and_fields_of_a_manifest_are_known(file: str, document: dict[str, Any]) -> None:
    kind = BY_NAME[document["kind"]]
    assert kind.api_version == document["apiVersion"]
    assert kind.resource.namespaced == ("namespace" in document["metadata"])
    assert set(document) - HEAD <= set(FIELDS), file


def test_programs_go_before_their_rights_and_after_what_asks_them() -> None:
    for workload in WORKLOADS:
        assert GOES["MutatingWebhookConfiguration"] < GOES[workload] < GOES["ServiceAccount"]
        assert GOES[workload] < GOES["ClusterRoleBinding"]
