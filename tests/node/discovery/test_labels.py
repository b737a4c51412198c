"""The labels of GPU Feature Discovery, from what the driver and the machine say."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.model import NodeFacts, Pin, Sold
from gpushare.gpu.device import Device, Versions
from gpushare.node.discovery import labels
from gpushare.node.discovery.labels import Machine, Sharing
from tests.support import manifests

VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
VERSIONS = Versions("550.54.15", "12.4")
LONG = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition of a Very Large Vendor"


def gpu(index: int = 0, name: str = "NVIDIA A100-SXM4-40GB", **more: Any) -> Device:
    known: dict[str, Any] = {"memory_mib": 40960, "capability": "8.0", "mig_capable": True} | more
    return Device(index=index, uuid=f"GPU-{index}", minor=index, bus="00000000:3B:00.0", name=name, **known)


def machine(*classes: int) -> Machine:
    return Machine("PowerEdge R740 (SKU=1; x)", {f"GPU-{i}": one for i, one in enumerate(classes)}, 1_700_000_000)


def of(
    *devices: Device, versions: Versions = VERSIONS, shared: Sharing | None = None, mig: str = "none"
) -> labels.Labels:
    return labels.labels(devices, versions, machine(0x0302, 0x0302), shared or Sharing(), mig)


def test_a_node_with_whole_gpus_has_all_labels_of_nvidia() -> None:
    assert of(gpu(0), gpu(1)) == {
        "gfd.timestamp": "1700000000",
        "cuda.driver.major": "550",
        "cuda.driver.minor": "54",
        "cuda.driver.rev": "15",
        "cuda.driver-version.major": "550",
        "cuda.driver-version.minor": "54",
        "cuda.driver-version.revision": "15",
        "cuda.driver-version.full": "550.54.15",
        "cuda.runtime.major": "12",
        "cuda.runtime.minor": "4",
        "cuda.runtime-version.major": "12",
        "cuda.runtime-version.minor": "4",
        "cuda.runtime-version.full": "12.4",
        "gpu.machine": "PowerEdge-R740-SKU1-x",
        "gpu.product": "NVIDIA-A100-SXM4-40GB",
        "gpu.count": "2",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.mode": "compute",
        "gpu.memory": "40960",
        "gpu.compute.major": "8",
        "gpu.compute.minor": "0",
        "gpu.family": "ampere",
        "mig.capable": "true",
        "mps.capable": "false",
    }


def test_replicas_are_in_the_labels_and_in_the_product() -> None:
    found = of(gpu(), shared=Sharing("time-slicing", 4))
    assert found["gpu.product"] == "NVIDIA-A100-SXM4-40GB-SHARED"
    assert (found["gpu.replicas"], found["gpu.sharing-strategy"], found["mps.capable"]) == (
        "4",
        "time-slicing",
        "false",
    )
    renamed = of(gpu(), shared=Sharing("mps", 4, renamed=True))
    assert (renamed["gpu.product"], renamed["mps.capable"]) == ("NVIDIA-A100-SXM4-40GB", "true")


def test_a_gpu_in_parts_of_mig_is_not_shared_otherwise() -> None:
    found = of(gpu(mig=True), shared=Sharing("mps", 4), mig="mixed")
    assert (found["gpu.replicas"], found["gpu.sharing-strategy"], found["mps.capable"]) == ("0", "none", "false")
    assert found["mig.strategy"] == "mixed"
    assert not found["gpu.product"].endswith("SHARED")


def test_of_several_models_the_one_with_most_gpus_is_told() -> None:
    a, b = "Tesla T4", "NVIDIA L4"
    for devices in (
        [gpu(0, a), gpu(1, b), gpu(2, a)],
        [gpu(0, b), gpu(1, a), gpu(2, a)],
        [gpu(2, a), gpu(1, a), gpu(0, b)],
    ):
        found = of(*devices)
        assert (found["gpu.product"], found["gpu.count"]) == ("Tesla-T4", "2")
    for devices in ([gpu(0, a), gpu(1, b)], [gpu(0, b), gpu(1, a)]):
        assert (of(*devices)["gpu.product"], of(*devices)["gpu.count"]) == ("NVIDIA-L4", "1")


def test_a_gpu_that_cannot_be_read_does_not_count() -> None:
    unreadable = gpu(1, "", memory_mib=0, capability="")
    assert of(gpu(0), unreadable)["gpu.count"] == "1"
    assert of(unreadable) == {}
    assert of() == {}


def test_what_the_driver_does_not_say_has_no_label() -> None:
    found = of(gpu(memory_mib=0, capability="", mig_capable=False), versions=Versions("", ""))
    assert not [key for key in found if key.startswith(("cuda.", "gpu.compute", "gpu.memory", "gpu.family"))]
    assert found["mig.capable"] == "false"
    nameless = labels.labels([gpu()], VERSIONS, Machine("", {}, 1), Sharing())
    assert (nameless["gpu.machine"], nameless["gpu.mode"]) == ("unknown", "unknown")


@pytest.mark.parametrize("driver", ["550", "550.54.15.01", "550.54-grid", "r550.54", "simulated", "550.", "५५०.५४"])
def test_a_strange_driver_version_costs_its_labels_only(driver: str) -> None:
    found = of(gpu(), versions=Versions(driver, "12.4"))
    assert not labels.understands(driver)
    assert not [key for key in found if key.startswith("cuda.driver")]
    assert found["cuda.runtime.major"] == "12"


def test_a_driver_version_of_two_numbers_has_an_empty_revision() -> None:
    found = of(gpu(), versions=Versions("470.82", ""))
    assert (found["cuda.driver.rev"], found["cuda.driver-version.full"]) == ("", "470.82")
    assert labels.understands("470.82")


@pytest.mark.parametrize(
    ("capability", "family"),
    [("3.7", "kepler"), ("5.2", "maxwell"), ("6.1", "pascal"), ("7.0", "volta"), ("7.2", "volta"), ("7.5", "turing"),
     ("8.0", "ampere"), ("8.6", "ampere"), ("8.9", "ada-lovelace"), ("9.0", "hopper"), ("10.0", "blackwell"),
     ("12.1", "blackwell"), ("13.0", "rubin"), ("2.0", "undefined"), ("14.0", "undefined")],
)  # fmt: skip
def test_a_family_follows_from_the_compute_capability(capability: str, family: str) -> None:
    assert of(gpu(capability=capability))["gpu.family"] == family


@pytest.mark.parametrize(("class_", "mode"), [(0x0302, "compute"), (0x0300, "graphics"), (0x0380, "unknown")])
def test_the_mode_follows_from_the_pci_class(class_: int, mode: str) -> None:
    found = labels.labels([gpu()], VERSIONS, Machine("", {"GPU-0": class_}, 1), Sharing())
    assert found["gpu.mode"] == mode


def test_a_long_name_is_cut_and_still_says_that_it_is_shared() -> None:
    found = of(gpu(name=LONG), shared=Sharing("time-slicing", 2))["gpu.product"]
    assert len(found) <= 63
    assert found.startswith("NVIDIA-RTX-PRO-6000")
    assert found.endswith("-SHARED")


@given(st.text(max_size=100), st.text(max_size=100), st.integers(1, 48), st.text(max_size=20))
def test_every_value_is_valid(name: str, model: str, replicas: int, version: str) -> None:
    shared = Sharing("time-slicing", replicas)
    found = labels.labels([gpu(name=name)], Versions(version, "12.4"), Machine(model, {}, 1), shared)
    for value in found.values():
        assert VALUE.fullmatch(value), value
        assert len(value) <= 63


def test_the_guard_of_nodes_lets_exactly_these_labels_through() -> None:
    text = manifests.one("node-guard.yaml", "ValidatingAdmissionPolicy")["spec"]["variables"]
    (expression,) = [one["expression"] for one in text if one["name"] == "refusedLabels"]
    pattern = re.compile("".join(re.findall(r"'([^']*)'", expression.rpartition("'^$' :")[2])))
    for key in of(gpu(), mig="single"):
        assert pattern.fullmatch(f"nvidia.com/{key}"), key
    for key in ("gpu.present", "gpu.deploy.driver", "device-plugin.config", "mig.config", "gpu"):
        assert not pattern.fullmatch(f"nvidia.com/{key}"), key


def facts(**more: Any) -> NodeFacts:
    return msgspec.structs.replace(NodeFacts("n", "MiB", Pin.DIRECT, ()), **more)


def test_how_gpus_are_shared_follows_from_what_is_sold() -> None:
    assert labels.sharing(None) == Sharing()
    assert labels.sharing(facts()) == Sharing("none", 1)
    assert labels.sharing(facts(slots=4)) == Sharing("none", 1), "a pod may have the GPU by memory, too"
    assert labels.sharing(facts(slots=4, only_mps=True)) == Sharing("mps", 4, renamed=True)
    assert labels.sharing(facts(sold=(Sold("nvidia.com/gpu"),))) == Sharing("none", 1)
    assert labels.sharing(facts(sold=(Sold("nvidia.com/gpu", 4, "mps"),))) == Sharing("mps", 4)
    renamed = facts(sold=(Sold("nvidia.com/gpu.shared", 4, "time-slicing"),))
    assert labels.sharing(renamed) == Sharing("time-slicing", 4, renamed=True)
