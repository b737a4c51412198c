"""Everything that a policy asks for: what is there, in which order, and what every object has."""

import json
from typing import Any

import pytest

from tests.support import policies, rights_of

ORDER = [
    "runtime-class", "gpunodes", "driver", "toolkit", "finder", "validator", "node-part", "discovery", "exporter",
    "node-status-exporter", "mps", "scheduler", "admission", "monitoring", "dashboard", "mig-manager", "vgpu-manager",
    "vgpu-device-manager", "vfio-manager",
]  # fmt: skip
UNSERVED = ("migManager", "vgpuManager", "vgpuDeviceManager", "vfioManager")
WORKLOADS = ("DaemonSet", "Deployment")
# By switch of the policy: component, and an object of it.
SWITCHES = {
    "driver": ("driver", "gpushare-driver"),
    "toolkit": ("toolkit", "gpushare-toolkit"),
    "finder": ("finder", "gpushare-finder"),
    "validator": ("validator", "gpushare-validator"),
    "devicePlugin": ("node-part", "gpushare-node"),
    "gfd": ("discovery", "gpushare-discovery"),
    "mps": ("mps", "gpushare-mps"),
    "scheduler": ("scheduler", "gpushare-schd-extender"),
    "admission": ("admission", "gpushare-pin"),
    "monitoring": ("monitoring", "gpushare-extender"),
    "dashboard": ("dashboard", "gpushare-dashboard"),
}
FLAGS = {"dcgmExporter": "exporter", "nodeStatusExporter": "node-status-exporter"}

every_policy = pytest.mark.parametrize("said", policies.POLICIES.values(), ids=policies.POLICIES.keys())


@every_policy
def test_components_come_in_the_order_of_the_status(said: dict[str, Any]) -> None:
    assert list(policies.desired(said)) == ORDER


@every_policy
def test_the_same_policy_gives_the_same_objects(said: dict[str, Any]) -> None:
    assert json.dumps(policies.objects(said)) == json.dumps(policies.objects(said))


@every_policy
def test_no_two_objects_have_one_name(said: dict[str, Any]) -> None:
    found = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in policies.objects(said)]
    assert len(found) == len(set(found))


@every_policy
def test_objects_are_new_each_time(said: dict[str, Any]) -> None:
    for one in policies.objects(said):
        one.clear()
    assert all(one["kind"] for one in policies.objects(said))


@every_policy
def test_every_object_can_be_applied(said: dict[str, Any]) -> None:
    for one in policies.objects(said):
        assert one["apiVersion"]
        assert one["kind"]
        assert one["metadata"]["name"]
        assert one["metadata"]["labels"]["app"] == "gpushare"
        assert "ownerReferences" not in one["metadata"]


@every_policy
def test_every_workload_has_pods_that_its_selector_selects(said: dict[str, Any]) -> None:
    for one in (one for one in policies.objects(said) if one["kind"] in WORKLOADS):
        template = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert template["spec"]["serviceAccountName"]
        volumes = [volume["name"] for volume in template["spec"].get("volumes", [])]
        assert len(volumes) == len(set(volumes))
        for container in (*template["spec"]["containers"], *template["spec"].get("initContainers", [])):
            assert container["image"]
            assert container["name"]
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)
            variables = [variable["name"] for variable in container.get("env", [])]
            assert len(variables) == len(set(variables))


@every_policy
def test_every_account_is_made_where_its_pods_and_bindings_look_for_it(said: dict[str, Any]) -> None:
    found = policies.objects(said)
    accounts = {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
    pods = {one["spec"]["template"]["spec"]["serviceAccountName"] for one in found if one["kind"] in WORKLOADS}
    subjects = [subject for one in found if one["kind"] in rights_of.BINDINGS for subject in one["subjects"]]
    assert pods <= accounts
    assert {subject["name"] for subject in subjects} <= accounts
    assert {subject["namespace"] for subject in subjects} <= {policies.NAMESPACE}


@every_policy
def test_nothing_stays_in_kube_system_but_what_is_about_kube_system(said: dict[str, Any]) -> None:
    found = [one for one in policies.objects(said) if "namespace" in one["metadata"]]
    staying = {
        (one["kind"], one["metadata"]["name"]) for one in found if one["metadata"]["namespace"] != policies.NAMESPACE
    }
    assert staying <= {
        ("Role", "gpushare-schd-extender"),
        ("RoleBinding", "gpushare-schd-extender"),
        ("Role", "gpushare-dashboard"),
        ("RoleBinding", "gpushare-dashboard"),
        ("RoleBinding", "gpu-scheduler-as-authentication-reader"),
    }
    assert "serviceaccount:kube-system:gpushare" not in json.dumps(found)


@pytest.mark.parametrize(("switch", "component", "name"), [(key, *value) for key, value in SWITCHES.items()])
def test_a_component_is_there_or_not_by_its_switch(switch: str, component: str, name: str) -> None:
    on = policies.desired(policies.EVERYTHING)[component]
    assert (on.enabled, on.unserved) == (True, "")
    assert name in [one["metadata"]["name"] for one in on.objects]
    off = policies.desired({**policies.EVERYTHING, "toolkit": {}, switch: {"enabled": False}})[component]
    assert (off.enabled, off.objects, off.unserved) == (False, (), "")


@pytest.mark.parametrize(("switch", "component"), FLAGS.items())
def test_what_is_a_flag_of_another_component_has_no_objects_of_its_own(switch: str, component: str) -> None:
    on = policies.desired(policies.EVERYTHING)[component]
    off = policies.desired({**policies.EVERYTHING, switch: {"enabled": False}})[component]
    assert (on.enabled, on.objects, off.enabled, off.objects) == (True, (), False, ())


def test_discovery_and_exporter_go_with_the_node_part() -> None:
    made = policies.desired({"devicePlugin": {"enabled": False}})
    assert [made[name].enabled for name in ("node-part", "discovery", "exporter")] == [False, False, False]


@pytest.mark.parametrize("field", UNSERVED)
def test_what_cannot_be_served_says_so_and_what_to_do(field: str) -> None:
    (found,) = (one for one in policies.desired({field: {"enabled": True}}).values() if one.unserved)
    assert found.enabled
    assert found.objects == ()
    assert f"set {field}.enabled to false" in found.unserved


def test_a_policy_for_nothing_leaves_only_the_definition_of_gpunodes() -> None:
    assert [one["kind"] for one in policies.objects(policies.NOTHING)] == ["CustomResourceDefinition"]


def test_pods_keep_the_security_context_of_their_manifest() -> None:
    shares = policies.container(policies.EVERYTHING, "gpushare-node")
    assert shares["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert shares["securityContext"]["readOnlyRootFilesystem"] is True
    assert policies.pod(policies.EVERYTHING, "gpushare-node")["securityContext"]["seccompProfile"]


def test_no_component_may_grant_rights_to_others() -> None:
    verbs = {right[3] for right in rights_of.granted(policies.objects(policies.EVERYTHING))}
    assert not verbs & {"bind", "escalate", "impersonate", "*"}
