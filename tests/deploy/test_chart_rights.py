"""The operator's rights in the chart: enough to make every part of every policy, and nothing besides."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from gpushare.operator.seeing import kinds
from tests.support import manifests
from tools import chart_parts, chart_rights, render_chart
from tools.chart_rights import CLUSTER, OWN, SYSTEM, Right

Object = dict[str, Any]
TEMPLATE = (manifests.ROOT / render_chart.CHART / "templates" / "rights.yaml").read_text("utf-8")
RBAC = "rbac.authorization.k8s.io"


def _roles() -> dict[str, set[Right]]:
    """As they are in the chart, by where they count."""
    text = TEMPLATE.replace('{{- include "gpushare.labels" . | nindent 4 }}', "").replace(OWN, "own")
    documents = list(yaml.safe_load_all(text.replace(render_chart.RIGHTS_HEADER, "")))
    roles = [one for one in documents if one["kind"] in ("Role", "ClusterRole")]
    assert [one["metadata"].get("namespace", CLUSTER) for one in roles] == [CLUSTER, "own", SYSTEM]
    assert len(documents) == 2 * len(roles)
    places = (CLUSTER, OWN, SYSTEM)
    return {
        where: {right for rule in one["rules"] for right in chart_rights.of_rule(rule)}
        for where, one in zip(places, roles, strict=True)
    }


ROLES = _roles()
PARTS = chart_parts.everything()


def test_it_may_grant_every_right_that_a_part_gets() -> None:
    """As the API server checks it: nobody grants what he does not have."""
    for one in PARTS:
        if one["kind"] in ("Role", "ClusterRole"):
            where = _where(one)
            for rule in one["rules"]:
                lacking = [right for right in chart_rights.of_rule(rule) if not _may(where, right)]
                assert not lacking, f"{one['kind']} {one['metadata']['name']}"


def test_it_may_bind_every_role_that_it_does_not_make() -> None:
    made = {(one["kind"], one["metadata"]["name"]) for one in PARTS}
    for one in (one for one in PARTS if one["kind"].endswith("RoleBinding")):
        reference = one["roleRef"]
        if (reference["kind"], reference["name"]) not in made:
            plural = f"{reference['kind'].lower()}s"
            assert _may(_where(one), Right(RBAC, plural, reference["name"], "bind"))


def test_it_may_write_every_object_that_a_policy_can_ask_for() -> None:
    for one in PARTS:
        resource, name = kinds.BY_NAME[one["kind"]].resource, one["metadata"]["name"]
        for verb in ("create", "patch", "delete"):
            assert _may(_where(one), Right(resource.group, resource.plural, name, verb)), name


def test_each_of_its_rights_has_a_reason() -> None:
    """It is its own, or a part needs it."""
    namespace = chart_parts.NAMESPACE
    reasons = [
        chart_rights.own(render_chart.OWN_RIGHTS),
        chart_rights.granted(PARTS, namespace),
        chart_rights.made(PARTS, namespace),
        chart_rights.bound(PARTS, namespace),
    ]
    for where, rights in ROLES.items():
        assert rights <= {right for reason in reasons for right in reason[where]}


def test_it_may_not_make_itself_more() -> None:
    """Whoever may write its own role, or escalate, or act for others, may do everything."""
    for rights in ROLES.values():
        assert not [right for right in rights if "*" in right or right.verb in ("escalate", "impersonate")]
    writes = _of(ROLES[CLUSTER], RBAC, ("clusterroles", "clusterrolebindings"), chart_rights.WRITES)
    assert "" not in {right.name for right in writes}
    assert chart_rights.NAME not in {right.name for right in writes}
    binds = [right for rights in ROLES.values() for right in rights if right.verb == "bind"]
    assert all(right.name for right in binds)


def test_it_reads_no_secret_outside_of_its_namespace() -> None:
    for where in (CLUSTER, SYSTEM):
        assert not _of(ROLES[where], "", ("secrets",), ("get", "list", "watch"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([Right("", "pods", "", "get"), Right("", "pods", "a", "get")], [Right("", "pods", "", "get")]),
        ([Right("", "pods", "a", "get"), Right("", "pods", "b", "get")], None),
        ([Right("", "pods", "", "list"), Right("", "pods", "a", "get")], None),
    ],
)
def test_a_right_with_a_name_is_left_out_only_where_one_without_says_the_same(
    given: list[Right], expected: list[Right] | None
) -> None:
    together = chart_rights.together({CLUSTER: set(given), OWN: set(given), SYSTEM: set()})
    assert together[CLUSTER] == set(expected or given)
    assert together[OWN] == set(), "the whole cluster has it already"


def test_rules_say_what_the_rights_say() -> None:
    for rights in ROLES.values():
        assert {right for rule in chart_rights.rules(rights) for right in chart_rights.of_rule(rule)} == rights


def _where(one: Object) -> str:
    where = one["metadata"].get("namespace", CLUSTER)
    return OWN if where == chart_parts.NAMESPACE else str(where)


def _may(where: str, right: Right) -> bool:
    places = {CLUSTER, where}
    return any({right, right._replace(name="")} & ROLES[place] for place in places)


def _of(rights: Iterable[Right], group: str, resources: Iterable[str], verbs: Iterable[str]) -> list[Right]:
    return [one for one in rights if one.group == group and one.resource in resources and one.verb in verbs]
