"""gpushare in a namespace of its own, not kube-system: whose accounts may write, and who never waits for it."""

from typing import Any

import msgspec
import pytest

from gpushare.core.admission import guard, unasked
from gpushare.core.facts import names
from gpushare.webhook import reviews, rules
from gpushare.webhook.rules import Choices, Object

NEW, OLD = (1, 28), (1, 27)
OPERATOR = "gpu-operator"
FORGED = {names.ALIYUN_IDX: "1"}
NODES = {"resource": "nodes"}


def account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def allowed(user: str, annotations: dict[str, str], namespace: str, **more: Any) -> bool:
    asked = {"uid": "u", "resource": {"resource": "pods"}, "userInfo": {"username": user}, **more}
    body = msgspec.json.encode({"request": {**asked, "object": {"metadata": {"annotations": annotations}}}})
    answer = msgspec.json.decode(reviews.guarded(body, guard.writers(namespace)))["response"]
    return bool(answer["allowed"])


@pytest.mark.parametrize("name", ["gpushare-schd-extender", "gpushare-node", "gpushare-nvidia"])
def test_our_accounts_write_in_the_namespace_where_gpushare_is_and_in_no_other(name: str) -> None:
    for here in (OPERATOR, guard.NAMESPACE):
        for there in (OPERATOR, guard.NAMESPACE, "third"):
            assert allowed(account(there, name), FORGED, here) is (here == there)
            assert allowed(account(there, name), {names.NODE_GPUS: "{}"}, here, resource=NODES) is (here == there)


def test_ketis_accounts_are_trusted_only_where_keti_can_be() -> None:
    assert allowed(account("gpu", "scheduler"), FORGED, guard.NAMESPACE)
    assert not allowed(account("gpu", "scheduler"), FORGED, OPERATOR)
    assert not allowed(account("gpu", "scheduler"), FORGED, "gpu")


@pytest.mark.parametrize(("key", "name"), list(guard.OF_NODES.items()))
def test_what_the_operator_and_the_validator_say_of_a_node_is_theirs_and_they_write_nothing_else(
    key: str, name: str
) -> None:
    theirs = account(OPERATOR, name)
    assert allowed(theirs, {key: "x"}, OPERATOR, resource=NODES)
    for user in (account("third", name), account(guard.NAMESPACE, name), "admin", "system:node:gpu-a"):
        assert not allowed(user, {key: "x"}, OPERATOR, resource=NODES)
    assert not allowed(theirs, {names.NODE_GPUS: "{}"}, OPERATOR, resource=NODES)
    assert not allowed(theirs, FORGED, OPERATOR)
    old = {"metadata": {"annotations": {key: "x"}}}
    assert allowed("admin", {}, OPERATOR, resource=NODES, oldObject=old)  # when a node leaves gpushare


def test_the_rules_name_the_accounts_and_the_service_of_that_namespace() -> None:
    guards = rules.guarding(NEW, OPERATOR)
    every = [*rules.mutating(NEW, Choices(namespace=OPERATOR)), *guards, *rules.validating(NEW, OPERATOR)]
    assert {one["clientConfig"]["service"]["namespace"] for one in every} == {OPERATOR}
    text = str(guards)
    assert account(OPERATOR, "gpushare-node") in text
    assert account(OPERATOR, "gpushare-validator") in text
    assert ":kube-system:" not in text
    assert ":gpu:" not in text


@pytest.mark.parametrize("namespace", [OPERATOR, "elsewhere", guard.NAMESPACE])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_no_pod_of_its_own_namespace_waits_for_a_webhook_that_is_away(namespace: str, version: tuple[int, int]) -> None:
    chosen = Choices(nvidia=True, void=True, scheduler="gpu-scheduler", namespace=namespace)
    for one in rules.mutating(version, chosen):
        if one["failurePolicy"] == "Fail" and "matchConditions" not in one and version == NEW:
            assert _leaves_out(one, namespace)  # the others are about pods that ask for GPUs
    for one in (found for found in rules.mutating(version, chosen) if "unasked" in found["name"]):
        assert _leaves_out(one, namespace)


def test_system_namespaces_are_left_out_as_ever() -> None:
    (unlabelled,) = (
        one
        for one in rules.mutating(NEW, Choices(void=True, namespace="elsewhere"))
        if one["name"] == "unasked.gpushare.io"
    )
    assert all(_leaves_out(unlabelled, name) for name in (*unasked.SYSTEM, "elsewhere"))


def _leaves_out(webhook: Object, namespace: str) -> bool:
    expressions = webhook["namespaceSelector"].get("matchExpressions", ())
    return any(
        one["key"] == rules.OWN_NAME and one["operator"] == "NotIn" and namespace in one["values"]
        for one in expressions
    )


def test_a_scheduler_is_given_after_the_pins_and_before_the_priority() -> None:
    chosen = Choices(nvidia=True, scheduler="gpu-scheduler")
    found = {one["name"].removesuffix(".gpushare.io"): one for one in rules.mutating(NEW, chosen)}
    assert list(found) == ["pin", "nvidia.pin", "scheduler-name", "priority"]
    one = found["scheduler-name"]
    assert one["clientConfig"]["service"]["path"] == "/scheduler-name/gpu-scheduler"
    assert one["failurePolicy"] == "Fail"
    conditions = {condition["name"]: condition["expression"] for condition in one["matchConditions"]}
    assert f"'{names.NVIDIA_GPU}'" in conditions["asks-for-gpus"]
    assert "['', 'default-scheduler']" in conditions["leaves-its-scheduler-open"]
    (plain,) = (o for o in rules.mutating(NEW, Choices(scheduler="s")) if o["name"] == "scheduler-name.gpushare.io")
    asks = plain["matchConditions"][0]["expression"]
    assert f"['{names.NVIDIA_GPU}'].exists(name, name in one.resources.limits) && has(one.env)" in asks, (
        "pods of NVIDIA's plugin do not depend on it"
    )
