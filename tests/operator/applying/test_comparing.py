"""An apply is sent if it would change something, and only then."""

import copy
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names
from gpushare.operator.applying import comparing, marking
from gpushare.operator.seeing.models import Live, Meta, Policy

Object = dict[str, Any]

POLICY = Policy(Meta(name="cluster-policy", uid="p-1"))
DAEMON_SET: Object = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "gpushare-node", "namespace": "gpu-operator", "labels": {"app": "gpushare"}},
    "spec": {
        "selector": {"matchLabels": {"app": "gpushare"}},
        "template": {
            "metadata": {"labels": {"app": "gpushare"}},
            "spec": {
                "containers": [
                    {
                        "name": "node",
                        "image": "gpushare:1",
                        "args": ["node", "--memory-unit=MiB"],
                        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "volumeMounts": [
                            {"name": "run", "mountPath": "/run/nvidia"},
                            {"name": "run", "mountPath": "/var/run"},
                        ],
                    }
                ],
                "tolerations": [{"operator": "Exists"}],
            },
        },
    },
}


def wanted() -> Object:
    return marking.marked(DAEMON_SET, "node-part", POLICY)


def live(body: Object | None = None) -> Live:
    """As the API server shows it: with defaults."""
    shown = copy.deepcopy(body or wanted())
    pod = shown["spec"]["template"]["spec"]
    pod |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    for container in pod["containers"]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        for one in container["env"]:
            if "valueFrom" in one:
                one["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    shown["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "1"
    shown["spec"]["revisionHistoryLimit"] = 10
    return msgspec.convert(shown, Live)


def test_what_the_api_server_adds_is_no_difference() -> None:
    assert comparing.as_wanted(live(), wanted())


def _container(shown: Live) -> Object:
    container: Object = shown.spec["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(
    "edit",
    [
        lambda shown: _container(shown).update(image="gpushare:2"),
        lambda shown: _container(shown)["args"].append("--debug"),
        lambda shown: _container(shown)["args"].reverse(),
        lambda shown: _container(shown).update(env=[]),
        lambda shown: _container(shown)["env"][0].pop("valueFrom"),
        lambda shown: _container(shown)["volumeMounts"].pop(),
        lambda shown: shown.spec["template"]["spec"].pop("tolerations"),
        lambda shown: shown.spec["template"]["spec"]["containers"].clear(),
        lambda shown: shown.metadata.labels.pop(names.PART_OF),
        lambda shown: shown.metadata.labels.update({"app": "other"}),
        lambda shown: shown.metadata.annotations.pop(names.WANTED),
        lambda shown: shown.metadata.owner_references.clear(),
    ],
)
def test_what_a_person_changes_is_a_difference(edit: Any) -> None:
    shown = live()
    edit(shown)
    assert not comparing.as_wanted(shown, wanted())


def test_what_others_add_where_lists_are_merged_by_name_stays() -> None:
    shown = live()
    _container(shown)["env"].insert(0, {"name": "ADDED", "value": "by a webhook"})
    shown.spec["template"]["spec"]["containers"].append({"name": "sidecar", "image": "mesh"})
    assert comparing.as_wanted(shown, wanted())


def test_one_more_rule_of_a_role_is_a_difference() -> None:
    role: Object = {"kind": "Role", "metadata": {}, "rules": [{"verbs": ["get"], "resources": ["pods"]}]}
    more = {**role, "rules": [*role["rules"], {"verbs": ["*"], "resources": ["*"]}]}
    assert comparing.as_wanted(msgspec.convert(role, Live), role)
    assert not comparing.as_wanted(msgspec.convert(more, Live), role)


def test_wanting_less_than_before_is_a_difference() -> None:
    """Else what was given before would stay."""
    before = copy.deepcopy(DAEMON_SET)
    before["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "GONE", "value": "x"})
    shown = live(marking.marked(before, "node-part", POLICY))
    assert not comparing.as_wanted(shown, wanted())


def test_what_is_empty_may_be_left_out() -> None:
    assert comparing.contains(None, {})
    assert comparing.contains({}, {"value": "", "list": [], "flag": False})
    assert not comparing.contains({}, {"value": "x"})
    assert not comparing.contains({"flag": 1}, {"flag": True})


def test_a_field_that_no_kind_of_ours_has_is_never_taken_for_equal() -> None:
    assert not comparing.as_wanted(Live(), {"kind": "Strange", "metadata": {}, "strange": 1})


def test_a_fingerprint_knows_contents_and_no_versions() -> None:
    one, other = live(), live()
    other.metadata.resource_version = "17"
    other.status = {"numberReady": 1}
    assert comparing.fingerprint(one) == comparing.fingerprint(other)
    other.spec["revisionHistoryLimit"] = 3
    assert comparing.fingerprint(one) != comparing.fingerprint(other)


def test_pods_of_a_workload_have_our_labels_and_its_selector_has_not() -> None:
    body = wanted()
    assert body["spec"]["template"]["metadata"]["labels"][names.PART_OF] == "node-part"
    assert body["spec"]["template"]["metadata"]["labels"][names.MANAGED_BY[0]] == names.MANAGED_BY[1]
    assert body["spec"]["selector"] == DAEMON_SET["spec"]["selector"]
    assert names.PART_OF not in DAEMON_SET["metadata"]["labels"], "the argument was changed"
