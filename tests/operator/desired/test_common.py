"""What a policy says about all parts on nodes reaches each of them, and what waits for what."""

from typing import Any

import pytest

from tests.support import policies, rights_of

NODE = "gpushare-node"
SELECTED = {
    "gpushare-driver": "driver",
    "gpushare-toolkit": "container-toolkit",
    "gpushare-validator": "operator-validator",
    "gpushare-node": "device-plugin",
    "gpushare-nvidia": "device-plugin",
    "gpushare-mps": "device-plugin",
}
WAITING = {
    "gpushare-driver": [],
    "gpushare-toolkit": ["validate", "--wait-for=driver"],
    "gpushare-finder": [],
    "gpushare-validator": [],
    "gpushare-node": ["validate", "--wait-for=driver,toolkit"],
    "gpushare-nvidia": ["validate", "--wait-for=driver,toolkit"],
    "gpushare-mps": ["validate", "--wait-for=driver,toolkit"],
}


def everything(**more: Any) -> dict[str, Any]:
    return {**policies.EVERYTHING, **more}


@pytest.mark.parametrize(("name", "part"), SELECTED.items())
def test_a_part_runs_where_the_label_of_nvidias_operator_says_so(name: str, part: str) -> None:
    selector = policies.pod(policies.EVERYTHING, name)["nodeSelector"]
    assert selector[f"nvidia.com/gpu.deploy.{part}"] == "true"


@pytest.mark.parametrize(("name", "words"), WAITING.items())
def test_a_part_waits_on_its_node_for_what_it_needs(name: str, words: list[str]) -> None:
    waiting = policies.pod(policies.EVERYTHING, name).get("initContainers", [])
    assert [word for container in waiting for word in container["args"]] == words
    for container in waiting:
        assert container["image"] == policies.IMAGE
        assert container["securityContext"]["runAsNonRoot"] is True
        assert [one["name"] for one in container["env"]] == ["NODE_NAME", "POD_NAME"]  # its event says who waits
        (mount,) = container["volumeMounts"]
        assert mount == {"name": "validations", "mountPath": "/run/nvidia/validations", "readOnly": True}


@pytest.mark.parametrize("name", [name for name, words in WAITING.items() if words])
def test_who_waits_may_ask_why_and_say_so(name: str) -> None:
    role = policies.one(policies.EVERYTHING, "ClusterRole", name)
    assert {("", "nodes", "", "list"), ("", "events", "", "create")} <= rights_of.granted([role])


def test_nothing_waits_where_no_validator_says_that_it_may_start() -> None:
    said = everything(validator={"enabled": False}, toolkit={}, nodeStatusExporter={})
    for name in ("gpushare-node", "gpushare-nvidia", "gpushare-mps"):
        assert "initContainers" not in policies.pod(said, name)


def test_the_toolkit_needs_the_validator() -> None:
    made = policies.desired({"toolkit": {"enabled": True}, "validator": {"enabled": False}})["toolkit"]
    assert made.objects == ()
    assert "validator.enabled is false" in made.unserved


def test_the_exporter_of_checks_needs_the_validator() -> None:
    said = {"nodeStatusExporter": {"enabled": True}, "validator": {"enabled": False}}
    assert "validator.enabled is false" in policies.desired(said)["node-status-exporter"].unserved


@pytest.mark.parametrize("name", SELECTED)
def test_tolerations_labels_annotations_and_priority_are_those_of_the_policy(name: str) -> None:
    toleration = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    common = {
        "tolerations": [toleration],
        "labels": {"cost": "gpu", "app": "mine"},
        "annotations": {"note": "x"},
        "priorityClassName": "high",
    }
    made = policies.one(everything(daemonsets=common), "DaemonSet", name)["spec"]["template"]
    assert made["spec"]["tolerations"] == [toleration]
    assert made["spec"]["priorityClassName"] == "high"
    assert made["metadata"]["labels"]["cost"] == "gpu"
    assert made["metadata"]["labels"]["app"] == "gpushare"  # else its selector would not find it
    assert made["metadata"]["annotations"]["note"] == "x"


def test_the_finder_looks_on_tainted_nodes_too() -> None:
    said: dict[str, Any] = {"daemonsets": {"tolerations": []}}
    assert policies.pod(said, "gpushare-finder")["tolerations"] == [{"operator": "Exists"}]
    assert policies.pod(said, NODE)["tolerations"] == []


def test_parts_tolerate_the_taint_that_the_policy_puts_on_nodes() -> None:
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    team = {"key": "team", "operator": "Exists"}
    for said in ({"taint": True}, {"taint": True, "tolerations": []}, {"taint": False}):
        assert policies.pod({"daemonsets": said}, NODE)["tolerations"] == [own]
    assert policies.pod({"daemonsets": {"tolerations": [team], "taint": True}}, NODE)["tolerations"] == [team, own]
    assert policies.pod({"daemonsets": {"tolerations": [team]}}, NODE)["tolerations"] == [team]


def test_no_priority_class_is_one_that_is_not_there() -> None:
    assert "priorityClassName" not in policies.pod({"daemonsets": {"priorityClassName": ""}}, NODE)


@pytest.mark.parametrize(
    ("common", "wanted"),
    [
        ({}, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}),
        (
            {"rollingUpdate": {"maxUnavailable": "20%"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}},
        ),
        ({"updateStrategy": "OnDelete"}, {"type": "OnDelete"}),
    ],
)  # fmt: skip
def test_a_change_reaches_pods_as_the_policy_says(common: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in ("gpushare-node", "gpushare-nvidia", "gpushare-validator", "gpushare-toolkit"):
        made = policies.one(everything(daemonsets=common), "DaemonSet", name)
        assert made["spec"]["updateStrategy"] == wanted


def test_driver_and_mps_daemon_are_never_changed_under_their_clients() -> None:
    for name in ("gpushare-driver", "gpushare-mps"):
        assert policies.one(policies.EVERYTHING, "DaemonSet", name)["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_resources_and_variables_of_a_part_are_those_of_the_policy() -> None:
    limits = {"limits": {"memory": "256Mi"}}
    env = [{"name": "LOG_LEVEL", "value": "debug"}, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]
    made = policies.container({"devicePlugin": {"resources": limits, "env": env}}, NODE)
    assert made["resources"] == limits
    values = {one["name"]: one.get("value") for one in made["env"]}
    assert (values["LOG_LEVEL"], values["NVIDIA_DRIVER_CAPABILITIES"]) == ("debug", "all")
    assert len(values) == len(made["env"])


def test_pods_that_need_the_driver_run_under_the_class_that_is_made() -> None:
    said = everything(operator={"runtimeClass": "nv"})
    runtime_class = policies.one(said, "RuntimeClass", "nv")
    assert runtime_class["handler"] == "nv"
    for name in ("gpushare-node", "gpushare-nvidia", "gpushare-mps"):
        assert policies.pod(said, name)["runtimeClassName"] == "nv"
    for name in ("gpushare-driver", "gpushare-toolkit", "gpushare-validator", "gpushare-finder"):
        assert "runtimeClassName" not in policies.pod(said, name)
    assert {"name": "CONTAINERD_RUNTIME_CLASS", "value": "nv"} in policies.container(said, "gpushare-toolkit")["env"]
    assert "--runtime-class=nv" in policies.container(said, "gpushare-validator")["args"]


def test_without_a_runtime_class_nobody_names_one() -> None:
    said = everything(operator={"runtimeClass": ""})
    made = policies.desired(said)["runtime-class"]
    assert (made.enabled, made.objects) == (False, ())
    assert "runtimeClassName" not in policies.pod(said, NODE)
    assert not [word for word in policies.container(said, "gpushare-validator")["args"] if "runtime-class" in word]


def test_folders_of_nodes_are_where_the_policy_says() -> None:
    paths = {"rootFS": "/host-root", "driverInstallDir": "/opt/driver", "kubeletRootDir": "/data/kubelet"}
    said = everything(hostPaths=paths, toolkit={"enabled": True, "installDir": "/opt/toolkit"})

    def folders(name: str) -> dict[str, str]:
        volumes = policies.pod(said, name)["volumes"]
        return {one["name"]: one["hostPath"]["path"] for one in volumes if "hostPath" in one}

    assert folders(NODE)["device-plugins"] == "/data/kubelet/device-plugins"
    assert folders("gpushare-validator")["host"] == "/host-root"
    assert folders("gpushare-toolkit")["driver-install-dir"] == "/opt/driver"
    assert folders("gpushare-toolkit")["toolkit-install-dir"] == "/opt/toolkit"
    assert folders("gpushare-toolkit")["host-root"] == "/host-root"
    mounts = {one["name"]: one["mountPath"] for one in policies.container(said, NODE)["volumeMounts"]}
    assert mounts["device-plugins"] == "/var/lib/kubelet/device-plugins"  # the program looks there
    args = policies.container(said, "gpushare-validator")["args"]
    assert {"--real-root=/host-root", "--driver-root=/opt/driver", "--toolkit-dir=/opt/toolkit"} <= set(args)


def test_the_validator_looks_at_the_usual_places_without_being_told() -> None:
    args = policies.container({}, "gpushare-validator")["args"]
    assert args == ["validate", "--keep", "--host-root=/host", "--runtime-class=nvidia"]


def test_the_pod_of_a_check_is_placed_by_whoever_places_those_of_users() -> None:
    for scheduler in ({"mode": "extender"}, {"enabled": False}):
        args = policies.container({"scheduler": scheduler}, "gpushare-validator")["args"]
        assert "--scheduler-name=default-scheduler" in args


def test_the_validator_answers_prometheus_if_asked_to() -> None:
    made = policies.container(policies.EVERYTHING, "gpushare-validator")
    assert "--metrics-listen=[$(POD_IP)]:8000" in made["args"]
    assert 8000 in [port["containerPort"] for port in made["ports"]]
    assert "POD_IP" in [one["name"] for one in made["env"]]
    assert 8000 not in [port["containerPort"] for port in policies.container({}, "gpushare-validator")["ports"]]
