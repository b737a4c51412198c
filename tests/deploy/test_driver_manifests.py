"""NVIDIA's own images run as NVIDIA's operator runs them, with no right that they do not need."""

from typing import Any

from gpushare.core.facts import names
from tests.support import manifests, rights_of

DRIVER, TOOLKIT, RUNTIME = (f"operator/{name}.yaml" for name in ("driver", "toolkit", "runtimeclass"))
READY = f"{names.VALIDATIONS_FOLDER}/.driver-ctr-ready"


def pod(file: str) -> dict[str, Any]:
    found: dict[str, Any] = manifests.one(file, "DaemonSet")["spec"]["template"]["spec"]
    return found


def variables(file: str) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in pod(file)["containers"][0]["env"]}


def test_the_driver_asks_the_api_server_for_nothing() -> None:
    assert rights_of.granted(manifests.documents(DRIVER)) == set()
    assert manifests.one(DRIVER, "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_toolkit_may_only_say_why_it_waits() -> None:
    assert rights_of.granted(manifests.documents(TOOLKIT)) == {("", "nodes", "", "list"), ("", "events", "", "create")}


def test_the_driver_says_when_it_works_and_when_it_ends() -> None:
    (container,) = pod(DRIVER)["containers"]
    probe = container["startupProbe"]
    assert probe["exec"]["command"][-1].endswith(f"> {READY}")
    assert "nvidia-smi" in probe["exec"]["command"][-1]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 20 * 60  # it may build modules
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1] == f"rm -f {READY}"


def test_the_root_of_the_driver_is_seen_by_the_node_and_by_the_toolkit() -> None:
    (offered,) = (one for one in pod(DRIVER)["containers"][0]["volumeMounts"] if one["name"] == "run-nvidia")
    assert (offered["mountPath"], offered["mountPropagation"]) == ("/run/nvidia", "Bidirectional")
    mounts = {one["mountPath"]: one for one in pod(TOOLKIT)["containers"][0]["volumeMounts"]}
    for place in ("/host", "/driver-root"):  # where the file driver-ready says that the driver is
        assert mounts[place]["mountPropagation"] == "HostToContainer"


def test_the_toolkit_takes_the_place_of_the_driver_from_the_validator() -> None:
    (container,) = pod(TOOLKIT)["containers"]
    assert f". {names.VALIDATIONS_FOLDER}/driver-ready;" in container["args"][0]


def test_nvidias_runtime_becomes_the_default_because_our_pods_name_no_class() -> None:
    assert variables(TOOLKIT)["NVIDIA_RUNTIME_SET_AS_DEFAULT"] == "true"
    assert variables(TOOLKIT)["CONTAINERD_RUNTIME_CLASS"] == manifests.one(RUNTIME, "RuntimeClass")["handler"]


def test_neither_is_given_gpus_by_the_runtime_that_it_installs() -> None:
    assert {variables(file)["NVIDIA_VISIBLE_DEVICES"] for file in (DRIVER, TOOLKIT)} == {"void"}


def test_a_new_driver_waits_until_somebody_has_emptied_the_node() -> None:
    assert manifests.one(DRIVER, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}
