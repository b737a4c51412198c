"""Whatever a manifest has, the operator can compare."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.operator.applying.comparing import FIELDS
from gpushare.operator.seeing.keys import WORKLOADS
from gpushare.operator.seeing.kinds import BY_NAME, GOES

DEPLOY = Path(__file__).parents[3] / "deploy"
HEAD = {"apiVersion", "kind", "metadata"}
NOT_FOR_THE_OPERATOR = ("install-scheduler.yaml", "keti", "scheduler")


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in sorted(DEPLOY.rglob("*.yaml")):
        name = str(file.relative_to(DEPLOY))
        if name.split("/", maxsplit=1)[0] in NOT_FOR_THE_OPERATOR or name.startswith("monitoring/rules"):
            continue
        found += [(name, one) for one in yaml.safe_load_all(file.read_text()) if one and "kind" in one]
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
