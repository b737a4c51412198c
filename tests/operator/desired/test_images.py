"""Which image a component runs, by what a policy says of it."""

import pytest

from gpushare.operator.desired import images
from gpushare.operator.desired.policy import Image
from tests.support import policies

OWN = "registry.example/team/gpushare:0.1.0"
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("said", "default", "wanted"),
    [
        ({}, OWN, OWN),
        ({"version": "0.2.0"}, OWN, "registry.example/team/gpushare:0.2.0"),
        ({"version": DIGEST}, OWN, f"registry.example/team/gpushare@{DIGEST}"),
        ({"repository": "mirror.example:5000/x"}, OWN, "mirror.example:5000/x/gpushare:0.1.0"),
        ({"repository": "r", "image": "other", "version": "1"}, OWN, "r/other:1"),
        ({}, f"registry.example:5000/gpushare@{DIGEST}", f"registry.example:5000/gpushare@{DIGEST}"),
        ({"version": "0.2.0"}, f"registry.example:5000/gpushare@{DIGEST}", "registry.example:5000/gpushare:0.2.0"),
        ({}, f"gpushare:0.1.0@{DIGEST}", f"gpushare@{DIGEST}"),
        ({}, "gpushare:0.1.0", "gpushare:0.1.0"),
        ({}, "gpushare", "gpushare:latest"),
    ],
)
def test_what_is_not_said_is_that_of_the_default(said: dict[str, str], default: str, wanted: str) -> None:
    assert images.name(Image(**said), default) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["driver", "toolkit", "finder", "validator", "devicePlugin", "mps"])
def test_another_image_without_a_version_is_refused(field: str) -> None:
    said = {**policies.EVERYTHING, field: {"enabled": True, "image": "other"}}
    (found,) = (one for one in policies.desired(said).values() if one.unserved)
    assert found.unserved == f"{field}.image is other, and no version says which: set {field}.version, too"
    assert found.objects == ()


def test_nvidias_own_parts_have_nvidias_images() -> None:
    driver = policies.container(policies.EVERYTHING, "gpushare-driver")
    toolkit = policies.container(policies.EVERYTHING, "gpushare-toolkit")
    assert driver["image"] == "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"
    assert toolkit["image"].startswith("nvcr.io/nvidia/k8s/container-toolkit:v")


@pytest.mark.parametrize("version", ["", "595.91.07"])
def test_a_driver_has_to_name_its_operating_system(version: str) -> None:
    made = policies.desired({"driver": {"enabled": True, "version": version}})["driver"]
    assert made.objects == ()
    assert made.unserved.endswith("such as 595.91.07-ubuntu24.04")


@pytest.mark.parametrize("said", [{"version": DIGEST}, {"image": "my-driver", "version": "7"}])
def test_a_driver_by_digest_or_of_ones_own_may_be_called_anything(said: dict[str, str]) -> None:
    assert policies.desired({"driver": {"enabled": True, **said}})["driver"].unserved == ""


def test_every_other_container_runs_the_image_of_the_operator() -> None:
    found = [one for one in policies.objects(policies.EVERYTHING) if one["kind"] == "DaemonSet"]
    used = {container["image"] for one in found for container in one["spec"]["template"]["spec"]["containers"]}
    assert {image for image in used if not image.startswith("nvcr.io/")} == {policies.IMAGE}


def test_pull_secrets_of_the_operator_and_of_the_part_are_joined() -> None:
    cluster = policies.CLUSTER._replace(pull_secrets=("all", "shared"))
    said = {
        "devicePlugin": {"imagePullSecrets": ["shared", "own"]},
        "validator": {"imagePullSecrets": ["checks"]},
    }
    assert policies.pod(said, "gpushare-node", cluster)["imagePullSecrets"] == [
        {"name": "all"}, {"name": "shared"}, {"name": "own"}, {"name": "checks"},
    ]  # fmt: skip
    assert "imagePullSecrets" not in policies.pod({}, "gpushare-node")


def test_the_pull_policy_is_that_of_the_part() -> None:
    said = {"devicePlugin": {"imagePullPolicy": "Always"}}
    assert policies.container(said, "gpushare-nvidia")["imagePullPolicy"] == "Always"
