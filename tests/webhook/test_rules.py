"""Which requests reach the webhook, and what else may depend on it: nothing."""

import copy

import pytest

from gpushare.core.admission import unasked
from gpushare.webhook import rules
from gpushare.webhook.rules import Choices, Object

OLD, NEW = (1, 27), (1, 28)


def every(version: tuple[int, int], choices: Choices = Choices()) -> list[Object]:  # noqa: B008 - a tuple
    return [*rules.mutating(version, choices), *rules.guarding(version), *rules.validating(version)]


def names(webhooks: list[Object]) -> list[str]:
    return [one["name"] for one in webhooks]


def test_where_there_are_conditions_everything_but_void_has_some() -> None:
    for one in every(NEW, Choices(nvidia=True, void=True)):
        assert ("matchConditions" in one) is not one["name"].endswith("unasked.gpushare.io")


def test_before_that_namespaces_say_it_by_label_and_nothing_reaches_system_namespaces() -> None:
    for one in every(OLD, Choices(nvidia=True, void=True)):
        assert "matchConditions" not in one
        assert one["namespaceSelector"]["matchLabels"] in ({"gpushare.io/pin": "direct"}, {unasked.LABEL: "void"})


def test_kubelets_never_wait_for_a_webhook_that_is_away() -> None:
    (guard,) = rules.guarding(OLD)
    assert guard["failurePolicy"] == "Ignore"
    assert not any("nodes" in rule["resources"] for rule in guard["rules"])
    assert all(one["failurePolicy"] == "Fail" for one in rules.guarding(NEW))
    (gpu_nodes,) = (one for one in rules.guarding(NEW) if one["name"] == "gpunodes.guard.gpushare.io")
    assert [(rule["operations"], rule["resources"]) for rule in gpu_nodes["rules"]] == [
        (["CREATE"], ["gpunodes"]),
        (["UPDATE"], ["gpunodes/status"]),
    ]


def test_pin_fails_closed_and_advice_fails_open() -> None:
    *pins, priority = rules.mutating(NEW, Choices(nvidia=True, void=True))
    assert {one["failurePolicy"] for one in pins} == {"Fail"}
    assert (priority["name"], priority["failurePolicy"]) == ("priority.gpushare.io", "Ignore")
    assert {one["failurePolicy"] for one in rules.validating(NEW)} == {"Ignore"}


def test_what_is_not_chosen_is_not_registered() -> None:
    assert names(rules.mutating(NEW, Choices())) == ["pin.gpushare.io", "priority.gpushare.io"]
    chosen = names(rules.mutating(NEW, Choices(nvidia=True, void=True)))
    assert chosen[:2] == ["pin.gpushare.io", "nvidia.pin.gpushare.io"]  # the order in which policies run, too
    assert sorted(chosen[2:-1]) == ["labelled.unasked.gpushare.io", "unasked.gpushare.io"]


def test_the_pin_can_be_limited_to_labelled_namespaces() -> None:
    for one in rules.mutating(NEW, Choices(labelled=True)):
        assert one["namespaceSelector"] == {"matchLabels": {"gpushare.io/pin": "direct"}}


def test_an_authority_that_somebody_else_writes_is_kept() -> None:
    wanted = rules.mutating(NEW, Choices())
    theirs = rules.with_bundles(wanted, "dGhlaXJz", [])
    assert rules.with_bundles(wanted, None, theirs) == theirs
    assert "caBundle" not in rules.with_bundles(wanted, None, [])[0]["clientConfig"]
    assert rules.with_bundles(wanted, "b3Vycw==", theirs)[0]["clientConfig"]["caBundle"] == "b3Vycw=="


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_is_there_is_compared_whatever_api_servers_add(version: tuple[int, int]) -> None:
    wanted = every(version)
    there = copy.deepcopy(wanted)
    for one in there:
        one["somethingNew"] = {"a": 1}
    assert rules.covers(there, wanted)
    there[0]["failurePolicy"] = "Ignore"
    assert not rules.covers(there, wanted)
    assert not rules.covers(wanted[:-1], wanted)
    assert not rules.covers(None, wanted)


@pytest.mark.parametrize("name", ["pin.gpushare.io", "nvidia.pin.gpushare.io"])
def test_a_limit_to_labelled_namespaces_that_is_not_wanted_any_more_is_noticed(name: str) -> None:
    there, wanted = (
        [one for one in rules.mutating(NEW, Choices(labelled=labelled, nvidia=True)) if one["name"] == name]
        for labelled in (True, False)
    )
    assert not rules.covers(there, wanted)
    assert not rules.covers(wanted, there)


@pytest.mark.parametrize(
    "narrow",
    [
        {"objectSelector": {"matchLabels": {"mine": "yes"}}},
        {"namespaceSelector": {"matchLabels": {"mine": "yes"}}},
        {"matchConditions": [{"name": "never", "expression": "false"}]},
    ],
    ids=lambda narrow: next(iter(narrow)),
)
def test_what_somebody_adds_so_that_fewer_pods_are_sent_is_noticed(narrow: Object) -> None:
    wanted = rules.mutating(NEW, Choices(void=True))
    assert not rules.covers([wanted[0], wanted[1] | narrow, *wanted[2:]], wanted)
