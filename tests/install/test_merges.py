"""A configuration that is there already is kept, with our entry in it."""

import json
from typing import Any

import pytest
import yaml

from gpushare.install import entries
from gpushare.obs.errors import UserError
from tests.install import texts

OTHER = {"urlPrefix": "http://10.0.0.9:80/other", "filterVerb": "filter", "managedResources": [{"name": "a.com/b"}]}
ALIYUN = {"urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler", "filterVerb": "filter", "bindVerb": "bind",
          "managedResources": [{"name": "aliyun.com/gpu-mem"}]}  # fmt: skip


def merged(existing: Any, **words: Any) -> Any:
    return yaml.safe_load(texts.made(texts.configured(), existing, **words).content)


def test_other_profiles_extenders_and_settings_stay() -> None:
    mine = texts.configuration(
        profiles=[{"schedulerName": "default-scheduler"}, {"schedulerName": "batch", "plugins": {}}],
        extenders=[OTHER], parallelism=8, percentageOfNodesToScore=100,
    )  # fmt: skip
    assert merged(mine) == {**mine, "extenders": [OTHER, entries.extender(texts.URL)]}


def test_the_users_file_is_not_touched_and_is_named_in_ours() -> None:
    plan = texts.made(texts.configured(), texts.configuration())
    assert plan.path.startswith(f"{entries.FOLDER}/scheduler-")
    assert f"from {texts.MINE}" in plan.content.decode().splitlines()[0]
    assert f"--config={plan.path}" in yaml.safe_load(plan.after)["spec"]["containers"][0]["command"]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3", "v1"])
def test_its_version_stays(version: str) -> None:
    assert merged(texts.configuration(version))["apiVersion"].endswith(f"/{version}")


def test_a_configuration_before_1_23_is_merged_and_no_policy_is_made() -> None:
    plan = texts.made(texts.configured(version="1.22"), texts.configuration("v1beta1"))
    assert yaml.safe_load(plan.content)["apiVersion"].endswith("/v1beta1")
    assert plan.flag == "config"


def test_an_entry_of_aliyuns_extender_is_replaced_in_its_place() -> None:
    found = merged(texts.configuration(extenders=[ALIYUN, OTHER]))
    assert found["extenders"] == [entries.extender(texts.URL), OTHER]


def test_all_nodes_are_offered_unless_the_user_says_otherwise() -> None:
    assert merged(texts.configuration())["percentageOfNodesToScore"] == 100
    plan = texts.made(texts.configured(), texts.configuration(percentageOfNodesToScore=30))
    assert yaml.safe_load(plan.content)["percentageOfNodesToScore"] == 30
    assert "percentageOfNodesToScore stays 30" in plan.notes[0]


def test_a_policy_is_merged_as_a_policy() -> None:
    mine = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}], "extenders": [OTHER]}
    plan = texts.made(texts.configured("--policy-config-file", "1.22"), mine)
    content = json.loads(plan.content)
    assert content["predicates"] == mine["predicates"]
    assert content["extenders"] == [OTHER, entries.for_policy(entries.extender(texts.URL))]
    assert (plan.flag, plan.path.endswith(".json")) == ("policy-config-file", True)


def test_a_configuration_that_has_our_entry_already_is_left_alone() -> None:
    mine = texts.configuration(percentageOfNodesToScore=100, extenders=[entries.extender(texts.URL)])
    assert texts.made(texts.configured(), mine).nothing_to_do


def test_the_pod_that_asks_is_for_a_scheduler_of_this_configuration() -> None:
    only = texts.configuration(profiles=[{"schedulerName": "mine"}])
    both = texts.configuration(profiles=[{"schedulerName": "mine"}, {"schedulerName": "default-scheduler"}])
    named = [texts.made(texts.configured(), one).scheduler for one in (only, both, texts.configuration())]
    assert named == ["mine", "default-scheduler", "default-scheduler"]


def test_the_lease_is_the_one_that_flags_or_the_file_name() -> None:
    named = texts.configuration(leaderElection={"resourceName": "mine", "resourceNamespace": "gpu"})
    assert texts.made(texts.configured(), named).lease == ("gpu", "mine")
    assert texts.made(texts.with_flags("--leader-elect-resource-name=x")).lease == ("kube-system", "x")


@pytest.mark.parametrize(
    ("extender", "reason"),
    [
        ({**OTHER, "bindVerb": "bind"}, "one extender that binds"),
        ({**OTHER, "managedResources": [{"name": "aliyun.com/gpu-mem"}]}, "one extender for each resource"),
    ],
)
def test_what_kube_scheduler_would_refuse_is_refused_before_it_is_stopped(extender: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        merged(texts.configuration(extenders=[extender]))


@pytest.mark.parametrize(
    ("existing", "reason"),
    [
        ({"kind": "Deployment", "apiVersion": "apps/v1"}, "it is a Deployment of apps/v1"),
        (texts.configuration("v2"), "known are"),
        (texts.configuration(extenders={"a": 1}), "extenders: expected list, got object"),
        (texts.configuration(extenders=[1]), r"extenders\[0\]: expected object, got int"),
        (texts.configuration(extenders=[{"managedResources": [1]}]), "managedResources"),
        (texts.configuration(profiles={"a": 1}), "profiles: expected list"),
        (texts.configuration(leaderElection=[]), "leaderElection: expected object"),
        (b"a: b: c", "cannot be read"),
        (b"- 1", "not one object"),
        (b"", "0 documents"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(existing: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        merged(existing)
