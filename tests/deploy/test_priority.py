"""KETI's priorities: the classes, and the policy that gives them, say what the webhook does."""

import re

import pytest

from gpushare.core.admission import priority
from gpushare.core.facts import names
from tests.support import manifests

FILE = "keti/deployments/priority.yaml"
KETIS = {priority.LOW: 10, priority.HIGH: 100, priority.IMMEDIATE: 1500}  # a pod without its word counts 50
CLASSES = {one["metadata"]["name"]: one for one in manifests.documents(FILE) if one["kind"] == "PriorityClass"}


@pytest.mark.parametrize("name", KETIS)
def test_a_class_is_ketis_number_around_pods_without_one_and_evicts_nobody(name: str) -> None:
    made = CLASSES[name]
    assert (made["value"], made["preemptionPolicy"]) == (KETIS[name] - 50, "Never")
    assert not made.get("globalDefault")


def test_the_policy_knows_the_same_words_as_the_webhook() -> None:
    conditions = manifests.one(FILE, "MutatingAdmissionPolicy")["spec"]["matchConditions"]
    says = {condition["name"]: condition["expression"] for condition in conditions}
    words = says["says-this-priority"]
    assert dict(re.findall(r"'([A-Z]+)': '([a-z-]+)'", words)) == priority.CLASSES
    assert f"[?'{names.PRIORITY}']" in words
    assert f"== '{priority.SCHEDULER}'" in says["of-gpu-scheduler"]
    assert set(priority.CLASSES.values()) == CLASSES.keys() == KETIS.keys()


def test_a_class_that_is_missing_refuses_no_pod() -> None:
    policy, binding = (manifests.one(FILE, f"MutatingAdmissionPolicy{word}")["spec"] for word in ("", "Binding"))
    assert policy["failurePolicy"] == "Ignore"
    given = binding["paramRef"]
    assert given["parameterNotFoundAction"] == "Allow"
    for made in CLASSES.values():
        assert given["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
